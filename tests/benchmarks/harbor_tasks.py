"""Four small tasks in Harbor's folders: three are bugs of the toy benchmark, one is about files."""

from pathlib import Path

from pipeline.benchmarks.toy.checkout import materialise
from pipeline.benchmarks.toy.rows import toy_rows

IMAGE = "registry.example.org/tasks/all:1"
TOML = """version = "1.0"
[metadata]
repository_url = "https://example.org/toy/{repo}.git"
[agent]
timeout_sec = 600.0
[verifier]
timeout_sec = 120.0
{verifier}
[environment]
docker_image = "{image}"
workdir = "{workdir}"
allow_internet = false
"""
RUN = """#!/bin/bash
git apply --whitespace=nowarn /tests/test.patch || exit 1
python3 runtests.py | tee /tmp/out
passed=$(grep -c ^PASSED /tmp/out); failed=$(grep -c ^FAILED /tmp/out)
[ $((passed + failed)) -gt 0 ] || exit 1
"""
TEXT = RUN + "echo $((failed == 0)) > /logs/verifier/reward.txt\n"
JSON = RUN + (
    'echo "{\\"reward\\": $((failed == 0)), \\"p2p_passed\\": $passed, '
    '\\"p2p_total\\": $((passed + failed))}" > /logs/verifier/reward.json\n'
    "echo 0 > /logs/verifier/reward.txt\n"
)
APART = """#!/bin/bash
echo -1 > /logs/verifier/reward.txt
[ -s /logs/artifacts/model.patch ] || exit 1
git apply /logs/artifacts/model.patch || {
  echo '{"reward": 0, "apply_failed": 1}' > /logs/verifier/reward.json; exit 0
}
""" + TEXT.removeprefix("#!/bin/bash\n")
COUNT = """#!/bin/bash
# A half for the file, a half for what is in it.
score=0; [ -f lines.txt ] && score=0.5
[ "$(cat lines.txt 2>/dev/null)" = "$EXPECTED" ] && score=1
echo "{\\"reward\\": $score}" > /logs/verifier/reward.json
"""
COUNT_TOML = TOML.replace("[agent]", "[verifier.env]\nEXPECTED = '3'\n[agent]").replace(
    "{verifier}", ""
)
SEPARATE = 'environment_mode = "separate"'
BUGS = {
    "toy__ledger-1": (TEXT, ""),
    "toy__tabular-1": (JSON, ""),
    "toy__ledger-2": (APART, SEPARATE),
}
FILES = "count-lines"


def write_tasks(folder: Path) -> Path:
    """Write the task folders into a new `folder` and return it."""
    for row in toy_rows():
        if row["instance_id"] in BUGS:
            script, verifier = BUGS[row["instance_id"]]
            repo = row["repo"].removeprefix("toy/")
            task = folder / row["instance_id"]
            words = {"repo": repo, "workdir": f"/srv/{task.name}", "image": IMAGE}
            toml = TOML.format(verifier=verifier, **words)
            if verifier:
                toml = f'artifacts = ["/logs/artifacts/model.patch"]\n{toml}'
                _write(task / "tests/Dockerfile", f"FROM {IMAGE}\nCOPY test.sh /tests/test.sh\n")
            _write(task / "task.toml", toml)
            _write(task / "instruction.md", f"<!-- canary 1 -->\n\n{row['problem_statement']}")
            _write(task / "tests/test.sh", script)
            _write(task / "tests/test.patch", row["test_patch"])
            _write(task / "solution/fix.patch", row["patch"])
            _write(task / "solution/solve.sh", "#!/bin/bash\ngit apply /solution/fix.patch\n")
    task = folder / FILES
    _write(task / "task.toml", COUNT_TOML.format(repo="lines", image=IMAGE, workdir="/srv/files"))
    _write(task / "instruction.md", "Write the number of lines of words.txt into lines.txt.\n")
    _write(task / "tests/test.sh", COUNT)
    _write(task / "solution/solve.sh", "#!/bin/bash\nwc -l < words.txt > lines.txt\n")
    return folder


def fill_image(root: Path) -> None:
    """Add to an image's root folder what the tasks begin with."""
    for row in toy_rows():
        if row["instance_id"] in BUGS:
            materialise(row, root / "srv" / row["instance_id"])
    _write(root / "srv/files/words.txt", "one\ntwo\nthree\n")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
