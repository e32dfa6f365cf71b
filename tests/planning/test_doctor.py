"""The doctor says what it found, whether it will do, and what to do about it."""

from pathlib import Path

import pytest

from pipeline import doctor
from pipeline.planning.config import sweep_spec
from pipeline.planning.doctor import Check, Level, fail, ok, warn, worst
from pipeline.planning.doctor_disk import disk_checks, file_system_of, quota_left
from pipeline.planning.doctor_host import host_checks
from pipeline.planning.doctor_slurm import slurm_checks
from pipeline.planning.estimate import estimated
from pipeline.records.layout import Layout

QUOTA = "/scratch 1024  1048576 1048576 - 12 250000 250000 -"


def named(checks: list[Check], name: str) -> Check:
    (found,) = (check for check in checks if check.name == name)
    return found


def test_the_gravest_check_decides_the_exit_status() -> None:
    assert worst([ok("a", "")]) is Level.OK
    assert worst([ok("a", ""), warn("b", "", "do"), ok("c", "")]) is Level.WARN
    assert worst([fail("a", "", "do"), warn("b", "", "do")]) is Level.FAIL
    assert worst([]) is Level.OK


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (QUOTA, (1047552, 249988)),
        ("/home\n  2048* 1024 4096 6d 10 0 0 -", (0, None)),
        ("/scratch 5 0 0 - 7 0 0 -", (None, None)),
        ("lfs: permission denied", None),
    ],
)
def test_what_a_quota_leaves_is_read_from_lustre(
    text: str, left: tuple[int | None, int | None] | None
) -> None:
    assert quota_left(text) == left


def test_the_file_system_of_a_folder_is_the_innermost_mount() -> None:
    assert file_system_of(Path("/proc/self")) == "proc"


def test_folders_are_tried_and_left_as_they_were(tmp_path: Path) -> None:
    spec = sweep_spec(["+sweep=demo", f"results={tmp_path}/a/b", f"cluster.scratch={tmp_path}"])
    checks = list(disk_checks(spec, estimated(spec, ())))
    assert named(checks, "results: claims").level is Level.OK
    assert str(tmp_path) in named(checks, "scratch").found
    assert list(tmp_path.iterdir()) == []


def test_images_that_were_not_staged_are_a_failure_that_says_how(tmp_path: Path) -> None:
    spec = sweep_spec(
        ["+sweep=demo", "sandbox=apptainer", f"cluster.images={tmp_path}", f"results={tmp_path}"]
    )
    check = named(list(disk_checks(spec, estimated(spec, ()))), "images")
    assert check.level is Level.FAIL
    assert "pipeline.stage images" in check.fix


def test_an_environment_in_the_home_folder_is_warned_of_where_there_is_scratch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = sweep_spec(["+sweep=demo", f"results={tmp_path}"])
    monkeypatch.setattr("sys.prefix", f"{tmp_path}/home/.venv")
    env = {"HOME": f"{tmp_path}/home", "SCRATCH": f"{tmp_path}/scratch"}
    check = named(list(host_checks(spec, env)), "place of the environment")
    assert check.level is Level.WARN
    assert "$SCRATCH" in check.fix


def test_a_proxy_that_would_be_asked_for_our_own_node_is_warned_of(tmp_path: Path) -> None:
    spec = sweep_spec(["+sweep=demo", f"results={tmp_path}"])
    proxy = {"https_proxy": "http://proxy:8080"}
    assert named(list(host_checks(spec, proxy)), "proxy").level is Level.WARN
    direct = {**proxy, "no_proxy": "localhost,127.0.0.1"}
    assert named(list(host_checks(spec, direct)), "proxy").level is Level.OK


def test_weights_and_vllm_that_are_missing_are_failures(tmp_path: Path) -> None:
    words = ["+sweep=demo", "model=tiny", f"results={tmp_path}"]
    words += [f"model.serve.python={tmp_path}/python", f"model.serve.model_path={tmp_path}/none"]
    checks = list(host_checks(sweep_spec(words), {}))
    assert named(checks, "model tiny: vLLM").level is Level.FAIL
    assert named(checks, "model tiny: weights").level is Level.FAIL


def test_without_slurms_commands_a_cluster_sweep_fails_and_a_local_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = sweep_spec(["+sweep=demo", f"results={tmp_path}"])
    cluster = sweep_spec(["+sweep=demo", "cluster=grace", f"results={tmp_path}"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert worst(slurm_checks(Layout(tmp_path), local)) is Level.OK
    assert "login node" in named(list(slurm_checks(Layout(tmp_path), cluster)), "slurm").fix


def test_the_door_checks_what_launch_would_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = doctor.main([f"results={tmp_path}/sweep"])
    said = capsys.readouterr().out
    assert status in (0, 1), said
    assert "12 instances, 96 runs" in said
    assert "0 fail" in said
    assert not (tmp_path / "sweep").exists()


def test_the_door_refuses_words_that_launch_would_refuse(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert doctor.main(["cluster=grase"]) == 2
    assert "Did you mean grace?" in capsys.readouterr().err


def test_a_server_that_does_not_answer_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["model=endpoint", "model.base_url=x", "model.served_name=m"]
    assert doctor.main(["--server", "http://127.0.0.1:1/v1", *words]) == 2
    assert "127.0.0.1:1" in capsys.readouterr().err
