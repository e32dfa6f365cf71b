"""Shell commands: kinds, what shows text, and numbers, by examples and by labels made by hand."""

import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest

from pipeline.shell.facts import facts_of, kind_of
from pipeline.shell.kinds import Kind

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
def test_a_command_is_what_its_last_telling_pipeline_does(command: str, kind: str):
    assert kind_of(command) == kind


COMPOUND = [
    ("cat a.py && pytest -q tests", "test", True),
    ("pytest -q tests; cat a.py", "read", True),
    ("for f in a.py b.py; do cat $f; done", "read", True),
    ('for f in *.py; do echo "== $f"; sed -n 1,20p "$f"; done', "read", True),
    ("( cd d; cat a.py )", "read", True),
    ("(cd d && pytest)", "test", False),
    ("{ cat a.py; cat b.py; } 2>&1 | head -50", "read", True),
    ("git ls-files '*.py' | xargs cat", "read", True),
    ("find . -name '*.py' -print0 | xargs -0 -n 1 head -5", "read", True),
    ("find . -name setup.cfg -exec cat {} \\;", "read", True),
    ("find . -name '*.py' -exec grep -n foo {} +", "search", True),
    ("find . -name '*.py' -exec sed -i 's/a/b/' {} +", "write", False),
    ("find . -name '*.pyc' -delete", "write", False),
    ("ls | while read f; do head -3 $f; done", "read", True),
    ("python - <<EOF\nprint(open('a.py').read())\nEOF", "read", True),
    (
        "python3 - <<'PY' 2>&1 | head -80\nimport re\ns = open('a.py').read()\nprint(s[:99])\nPY",
        "read",
        True,
    ),
    ("python - <<EOF\nimport a\nprint(a.f())\nEOF", "run", False),
    ("cat <<'EOF' | python\nprint(1)\nEOF", "run", False),
    ("if [ -f a.py ]; then cat a.py; else ls; fi", "search", True),
    ("[ -f setup.cfg ] && cat setup.cfg", "read", True),
    ("bash -lc 'cd d && cat a.py'", "read", True),
    ("sudo timeout 30 cat a.py", "read", True),
    ("cat a.py || true", "read", True),
    ("cat $(git ls-files | head -3)", "read", True),
    ("cat a.py > b.py", "write", False),
    ("cat a.py > /dev/null", "read", False),
    ("cat a.py | python -m json.tool", "run", False),
    ("git diff | git apply -R", "write", False),
    ("echo 'cat a.py && git log'", "other", False),
    ("grep -rn 'cat a.py; pytest' docs", "search", True),
    ("wc -l a.py b.py c.py", "search", False),
    ("cat a.py | wc -l", "read", False),
    ("find . -name '*.py' | xargs wc -l", "search", False),
    ("grep -c foo *.py", "search", False),
    ("git status --short && git diff --stat", "history", True),
    ("git status", "history", False),
    ("pytest -q | tee log.txt", "test", False),
    ("echo x | tee a.py", "write", False),
    ("cat > a.py <<'A' && cat a.py\nx = 1\nA", "read", True),
    ("awk 'NR>=10 && NR<=20' a.py", "read", True),
    ("export PYTHONPATH=.; python run.py", "run", False),
    ("cd d && time make test", "test", False),
    ("case $x in a) cat a.py;; esac", "read", True),
    ("str_replace_based_edit_tool view /testbed/a.py", "read", True),
]
"""Command, kind, and whether the output shows text, by hand."""


@pytest.mark.parametrize(("command", "kind", "shows_text"), COMPOUND)
def test_compound_commands_are_read_as_the_shell_reads_them(
    command: str, kind: str, shows_text: bool
):
    facts = facts_of(command)
    assert (facts.kind, facts.shows_text) == (kind, shows_text)


@pytest.mark.parametrize(
    ("command", "numbered"),
    [
        ("cat -n a.py", True),
        ("nl -ba a.py | sed -n 5,9p", True),
        ("grep -rn foo src", True),
        ("rg --line-number foo", True),
        ("git grep -n foo", True),
        ("awk '{print NR\": \"$0}' a.py", True),
        ("cat a.py | grep -n foo", True),
        ("str_replace_based_edit_tool view /testbed/a.py", True),
        ("cat a.csv", False),
        ("grep -r foo src", False),
        ("sed -n 5,9p a.csv", False),
        ("cat a.csv; grep -n foo b.py > log", False),
    ],
)
def test_only_commands_that_number_lines_have_numbers_before_them(command: str, numbered: bool):
    assert facts_of(command).numbered is numbered


def test_the_words_that_a_command_shows_are_those_of_its_reading_pipelines():
    facts = facts_of("for f in a.py b.py; do cat \"$f\"; done; sed -i 's/x/y/' c.py; head < d.py")
    assert {"a.py", "b.py", "d.py"} <= facts.shown_words
    assert "c.py" not in facts.shown_words


def test_reads_are_what_can_be_fetched_again():
    assert {k for k in Kind if k.is_read} == {Kind.READ, Kind.SEARCH, Kind.HISTORY}


def labelled() -> list[tuple[str, str]]:
    """Return (label by hand, label by rule) of every pipeline of the real trajectories."""
    labels = json.loads(LABELS.read_text())
    pairs = []
    for path in sorted(TRAJECTORIES.glob("*.json")):
        for message in json.loads(path.read_text())["messages"]:
            for action in (message.get("extra") or {}).get("actions") or ():
                for place, kind in enumerate(facts_of(action["command"]).kinds):
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
