"""Which files a command writes and prints, and which commands look where the answer may lie."""

import pytest

from pipeline.shell.files import read_by, written_by
from pipeline.shell.leaks import fetches_from_network, looks_at_other_commits, named_commit


@pytest.mark.parametrize(
    ("command", "path", "content"),
    [
        ("cat > a.py << 'EOF'\nx = 1\nEOF", "a.py", "x = 1"),
        ("cat <<EOF | tee -a a.py\nx = 1\nEOF\nls", "a.py", "x = 1"),
        ("python - <<'P'\nopen('a.py', 'w').write('1')\nP", "a.py", "open('a.py', 'w').write('1')"),
        ("cd d && sed -i 's/a/b/' a.py", "a.py", "'s/a/b/'"),
    ],
)
def test_the_content_that_a_command_writes_is_found_in_its_text(
    command: str, path: str, content: str
):
    (written,) = written_by(command)
    assert (written.path, command[written.start : written.end]) == (path, content)


def test_two_heredocs_on_one_line_each_have_their_own_text():
    command = "cat <<A >a.py && cat <<B >b.py\n1\nA\n2\nB\nls"
    assert [command[w.start : w.end] for w in written_by(command)] == ["1", "2"]


def test_a_command_reads_what_it_prints_and_nothing_else():
    assert "src/a.py" in read_by("cd x && cat src/a.py; pytest tests/b.py")
    assert "tests/b.py" not in read_by("cd x && cat src/a.py; pytest tests/b.py")
    assert read_by("sed -i 's/x/y/' a.py") == frozenset()
    assert read_by("echo 'cat a.py'") == frozenset()


@pytest.mark.parametrize(
    ("command", "looks"),
    [
        ("git log --all --oneline", True),
        ("git show origin/main:a.py", True),
        ("git diff HEAD..upstream/main", True),
        ("bash -c 'git reflog | head'", True),
        ("git log --oneline -5", False),
        ("grep -rn 'git log --all' docs", False),
    ],
)
def test_looking_at_other_commits_is_noticed_where_git_does_it(command: str, looks: bool):
    assert looks_at_other_commits(command) is looks


@pytest.mark.parametrize(
    ("command", "fetches"),
    [
        ("cd x && pip install foo", True),
        ("python -m pip install -q foo", True),
        ("curl https://example.org", True),
        ("(git clone https://example.org/x)", True),
        ("pip list", False),
        ("grep -rn 'curl x' .", False),
    ],
)
def test_fetching_from_the_network_is_noticed_where_a_program_does_it(command: str, fetches: bool):
    assert fetches_from_network(command) is fetches


@pytest.mark.parametrize(
    ("command", "commit"),
    [
        ("git show a19b528 --stat", "a19b528"),
        ("cd x; git diff a19b528..HEAD -- f", "a19b528"),
        ("git show HEAD", None),
        ("git diff -- feedback1.py", None),
        ("git show HEAD:deadbeef1.py", None),
        ("echo git show a19b528", None),
    ],
)
def test_the_commit_that_git_is_asked_for_is_named(command: str, commit: str | None):
    assert named_commit(command) == commit
