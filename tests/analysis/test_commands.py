"""Kinds of commands: examples by rule, and accuracy on commands labelled by hand."""

import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest

from pipeline.analysis.behaviour.commands import (
    Kind,
    fetches_from_network,
    kind_of,
    kinds_of_statements,
    looks_at_other_commits,
    named_commit,
    statements,
)

TRAJECTORIES = Path(__file__).parents[3] / "shared/data/trajectories"
LABELS = Path(__file__).with_name("command_labels.json")


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("cat src/a.py", "read"),
        ("cd /testbed && sed -n '10,40p' src/a.py", "read"),
        ("nl -ba a.py | sed -n '1,20p'", "read"),
        ("cat a.py | grep -n x -A 30", "read"),
        ("grep -rn 'a > b' src | head", "search"),
        ("find . -name '*.py' | xargs grep -l foo", "search"),
        ("git grep foo", "search"),
        ("git log --oneline | head -5", "history"),
        ("git --no-pager show HEAD~1 -- a.py", "history"),
        ("git diff -- a.py > patch.txt", "write"),
        ("git diff -- a.py", "history"),
        ("sed -i 's/a/b/' a.py", "write"),
        ("sed -n -i.bak 's/a/b/p' a.py", "write"),
        ("cat > a.py << 'EOF'\nprint('x')\nEOF", "write"),
        ("cat > a.py << 'EOF'\nprint('x')\nEOF\npython a.py", "run"),
        ("cat > e.py <<EOF\nopen('b.py', 'w').write('x')\nEOF\npython e.py", "write"),
        ("python - <<'EOF'\nfrom pathlib import Path\nPath('a').write_text('b')\nEOF", "write"),
        ("python -c \"print(open('a.py').read())\"", "read"),
        ("python -c 'import a; print(a.f(1 > 0))'", "run"),
        ("python -m pytest tests -k x 2>&1 | tail -20", "test"),
        ("cd /testbed && ./tests/runtests.py admin", "test"),
        ("python tests/runtests.py admin 2>/dev/null", "test"),
        ("FOO=1 timeout 60 pytest -x", "test"),
        ("pip install -q numpy", "environment"),
        ("python -m pip list", "environment"),
        ("pwd", "other"),
        ("pwd && ls -la", "search"),
        ("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat patch.txt", "submit"),
        ("", "other"),
    ],
)
def test_a_command_is_what_its_last_telling_statement_does(command: str, kind: str):
    assert kind_of(command) == kind


def test_pipelines_quotes_and_heredocs_do_not_split_statements():
    command = "cd a && echo 'b; c && d' | cat\ncat > x <<'E'\none; two\nE\nls"
    assert [s.text for s in statements(command)] == [
        "cd a",
        "echo 'b; c && d' | cat",
        "cat > x <<0",
        "ls",
    ]


def test_commits_and_networks_are_noticed():
    assert looks_at_other_commits("git log --all --oneline")
    assert looks_at_other_commits("git show origin/main:a.py")
    assert not looks_at_other_commits("git log --oneline -5")
    assert fetches_from_network("cd x && pip install foo")
    assert fetches_from_network("curl https://example.org")
    assert not fetches_from_network("pip list")
    assert named_commit("git show a19b528 --stat") == "a19b528"
    assert named_commit("git show HEAD") is None
    assert named_commit("git diff -- feedback.py") is None


def test_reads_are_what_can_be_fetched_again():
    assert {k for k in Kind if k.is_read} == {Kind.READ, Kind.SEARCH, Kind.HISTORY}


def labelled() -> list[tuple[str, str]]:
    """Return (label by hand, label by rule) of every statement of the real trajectories."""
    labels = json.loads(LABELS.read_text())
    pairs = []
    for path in sorted(TRAJECTORIES.glob("*.json")):
        for message in json.loads(path.read_text())["messages"]:
            for action in (message.get("extra") or {}).get("actions") or ():
                kinds = kinds_of_statements(action["command"])
                for place, kind in enumerate(kinds):
                    digest = hashlib.sha256(f"{action['command']}\0{place}".encode())
                    pairs.append((labels[digest.hexdigest()[:16]], kind.value))
    return pairs


@pytest.mark.skipif(not TRAJECTORIES.is_dir(), reason="no ../shared/data/trajectories here")
def test_rules_agree_with_labels_made_by_hand_on_real_commands():
    pairs = labelled()
    assert len(pairs) >= 300
    agreed = sum(by_hand == by_rule for by_hand, by_rule in pairs) / len(pairs)
    confused = Counter(pair for pair in pairs if pair[0] != pair[1])
    assert agreed >= 0.97, confused


def test_the_labelled_set_holds_labels_only():
    labels = json.loads(LABELS.read_text())
    assert len(labels) >= 300
    assert all(len(key) == 16 for key in labels)
    assert set(labels.values()) <= {k.value for k in Kind}
