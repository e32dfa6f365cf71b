"""vLLM's command line and environment, whole: every word that it is given is here."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.planning.config import known, sweep_spec
from pipeline.serving.command import located, vllm_argv, vllm_environment
from pipeline.spec.model import ModelSpec, ServeSpec


def model(*, n_gpus: int = 0, **serve: Any) -> ModelSpec:
    return ModelSpec(
        name="m", kind="vllm", repo="Org/Model", n_gpus=n_gpus, serve=ServeSpec(**serve)
    )


def test_a_bare_model_is_served_with_what_we_always_want_and_no_more():
    assert vllm_argv(model(), port=20001) == [
        *(".venv-vllm/bin/python", "-m", "vllm.entrypoints.cli.main", "serve", "Org/Model"),
        *("--host", "127.0.0.1", "--port", "20001", "--served-model-name", "m"),
        *("--max-model-len", "32768", "--dtype", "auto", "--generation-config", "vllm"),
        *("--max-num-seqs", "16"),
        *("--enable-prompt-tokens-details", "--enable-prefix-caching"),
        "--disable-uvicorn-access-log",
    ]


def test_qwen_on_two_cards_gets_its_parsers_and_its_memory_plan():
    (spec,) = sweep_spec(["+sweep=demo", "model=qwen3_5_27b"]).models.values()
    assert vllm_argv(located(spec, Path("/site")), port=20065) == [
        *("/site/.venv-vllm/bin/python", "-m", "vllm.entrypoints.cli.main"),
        *("serve", "Qwen/Qwen3.5-27B"),
        *("--host", "127.0.0.1", "--port", "20065", "--served-model-name", "qwen3_5_27b"),
        *("--max-model-len", "131072", "--dtype", "bfloat16", "--generation-config", "vllm"),
        *("--tensor-parallel-size", "2", "--max-num-seqs", "16"),
        *("--max-num-batched-tokens", "2352"),
        *("--prefix-cache-retention-interval", "4704", "--gpu-memory-utilization", "0.92"),
        *("--tool-call-parser", "qwen3_coder", "--reasoning-parser", "qwen3"),
        *("--enable-prompt-tokens-details", "--enable-auto-tool-choice"),
        *("--enable-prefix-caching", "--disable-uvicorn-access-log", "--language-model-only"),
        *("--mamba-cache-mode", "align"),
    ]


def test_a_store_for_splicing_is_a_connector_that_recomputes_what_it_cannot_load():
    argv = vllm_argv(model(splice_store_gib=2.5), port=20001)
    settings = json.loads(argv[argv.index("--kv-transfer-config") + 1])
    assert settings == {
        "kv_connector": "SpliceConnector",
        "kv_connector_module_path": "pipeline.serving.splice.connector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"store_gib": 2.5},
    }


def test_an_image_is_run_with_its_gpus_and_its_folders():
    spec = model(
        n_gpus=2,
        runtime="apptainer",
        image="/images/vllm.sif",
        model_path="/weights/m",
        tensor_parallel=2,
    )
    argv = vllm_argv(spec, port=20001, binds=("/tmp/cache",))
    assert argv[: argv.index("--host")] == [
        *("apptainer", "exec", "--cleanenv", "--nv"),
        *("--bind", "/tmp/cache", "--bind", "/weights/m"),
        *("/images/vllm.sif", "vllm", "serve", "/weights/m"),
    ]


def test_a_container_without_an_image_is_refused():
    with pytest.raises(ValueError, match=r"serve\.image, the SIF made from containers/vllm\.def"):
        vllm_argv(model(runtime="apptainer"), port=1)


def test_a_switch_that_is_off_is_left_out_and_one_that_vllm_has_on_is_turned_off():
    argv = vllm_argv(model(prefix_caching=False, enforce_eager=False, text_only=False), port=1)
    assert "--no-enable-prefix-caching" in argv
    assert not {"--enable-prefix-caching", "--enforce-eager", "--language-model-only"} & {*argv}
    assert "False" not in argv
    assert "None" not in argv


def test_a_revision_is_named_for_a_repository_and_not_for_a_staged_folder():
    spec = replace(model(), revision="abc")
    assert "--revision" in vllm_argv(spec, port=1)
    staged = replace(spec, serve=ServeSpec(model_path="/weights/m"))
    assert "--revision" not in vllm_argv(staged, port=1)


@pytest.mark.parametrize("name", [name for name in known("model") if name != "endpoint"])
def test_every_shipped_model_has_a_command(name: str):
    (spec,) = sweep_spec(["+sweep=demo", f"model={name}"]).models.values()
    if spec.kind == "vllm":
        argv = vllm_argv(spec, port=1)
        assert all(isinstance(word, str) and word for word in argv)
        assert spec.n_gpus == (spec.serve.tensor_parallel if spec.n_gpus else 0)


# --- the environment -----------------------------------------------------------------------------
def environment_of(spec: ModelSpec, **base: str) -> dict[str, str]:
    return vllm_environment(
        spec, base=base, cache=Path("/node/c"), internal_port=20002, node="gpu7"
    )


def test_the_environment_is_offline_local_and_of_this_server_alone():
    assert environment_of(model(), PATH="/bin", PYTHONPATH="/ours", VIRTUAL_ENV="/ours") == {
        "PATH": "/bin",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "NO_PROXY": "127.0.0.1,localhost,gpu7",
        "no_proxy": "127.0.0.1,localhost,gpu7",
        "VLLM_PORT": "20002",
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_CACHE_ROOT": "/node/c/vllm",
        "TORCHINDUCTOR_CACHE_DIR": "/node/c/inductor",
        "TRITON_CACHE_DIR": "/node/c/triton",
        "FLASHINFER_WORKSPACE_BASE": "/node/c",
    }


def test_a_sites_own_exceptions_from_the_proxy_stay():
    assert environment_of(model(), no_proxy=".tamu")["NO_PROXY"] == "127.0.0.1,localhost,gpu7,.tamu"


def test_the_models_own_variables_have_the_last_word():
    spec = model(env={"VLLM_NO_USAGE_STATS": "0", "OMP_NUM_THREADS": "2"})
    env = environment_of(spec, OMP_NUM_THREADS="1")
    assert (env["VLLM_NO_USAGE_STATS"], env["OMP_NUM_THREADS"]) == ("0", "2")


def test_a_container_is_told_by_prefix_since_nothing_else_gets_in():
    spec = model(runtime="apptainer", image="/i.sif", container="/opt/bin/singularity")
    env = environment_of(spec, CUDA_VISIBLE_DEVICES="1", LD_LIBRARY_PATH="/modules")
    assert env["SINGULARITYENV_VLLM_PORT"] == "20002"
    assert env["SINGULARITYENV_CUDA_VISIBLE_DEVICES"] == "1"
    assert "SINGULARITYENV_LD_LIBRARY_PATH" not in env


def test_paths_are_taken_from_the_checkout_unless_they_are_absolute():
    spec = located(model(model_path="models/m", python="/abs/python", image="v.sif"), Path("/co"))
    assert spec.serve.model_path == "/co/models/m"
    assert spec.serve.python == "/abs/python"
    assert spec.serve.image == "/co/v.sif"
