from hypothesis import given
from hypothesis import strategies as st

from pipeline.serving.sim.recipe import FileEdit, Need
from pipeline.serving.sim.sight import (
    missing_needs,
    read_of,
    reading_command,
    seen_of,
    shows_old_text,
)
from pipeline.serving.sim.view import Action

NEED = Need(path="a.py", start=3, end=5)


def done(command, output):
    return Action(tool="bash", command=command, arguments={"command": command}, output=output)


def numbered(*numbers):
    return "\n".join(f"{n:6}\tline {n}" for n in numbers)


@given(st.integers(1, 500), st.integers(0, 60), st.integers(0, 2), st.integers(0, 10))
def test_every_reading_command_shows_what_it_was_made_for(start, length, style, margin):
    need = Need(path="pkg/a.py", start=start, end=start + length)
    read = read_of(reading_command(need, style=style, margin=margin))
    assert read is not None
    assert read.path == need.path
    assert read.start <= need.start
    assert read.end >= need.end


def test_a_range_is_seen_only_while_its_output_is_shown():
    command = "sed -n '1,6p' a.py"
    assert missing_needs([done(command, "1\n2\n3\n4\n5\n6")], [NEED]) == []
    assert missing_needs([done(command, None)], [NEED]) == [NEED]


def test_lines_that_were_filtered_out_are_missing():
    whole = numbered(1, 2, 3, 4, 5, 6)
    pruned = numbered(1, 2, 3) + "\n(filtered 2 lines)\n" + numbered(6)
    assert missing_needs([done("cat -n a.py", whole)], [NEED]) == []
    assert missing_needs([done("cat -n a.py", pruned)], [NEED]) == [NEED]
    assert missing_needs([done("cat a.py", "1\n(filtered 9 lines)\n9")], [NEED]) == [NEED]


def test_lines_after_the_end_of_the_file_are_not_missed():
    assert missing_needs([done("sed -n '1,90p' a.py", "1\n2\n3\n4")], [NEED]) == []


def test_two_reads_together_may_show_the_range():
    actions = [done("sed -n '1,3p' a.py", "1\n2\n3"), done("sed -n '4,9p' a.py", "4\n5\n6")]
    assert missing_needs(actions, [NEED]) == []


def test_what_was_read_before_an_edit_is_stale():
    actions = [done("cat a.py", "1\n2\n3\n4\n5\n6"), done("sed -i 's/1/2/' a.py", None)]
    assert missing_needs(actions, [NEED]) == [NEED]
    assert missing_needs(actions, [NEED], stale_too=True) == []


def test_another_file_shows_nothing():
    assert seen_of([done("cat b.py", "1\n2\n3\n4\n5\n6")], "a.py").lines == set()


def test_the_old_text_counts_with_or_without_line_numbers():
    edit = FileEdit(path="a.py", old="    x = 1\n    y = 2\n", new="")
    assert shows_old_text([done("cat -n a.py", "     7\t    x = 1\n     8\t    y = 2")], edit)
    assert not shows_old_text([done("cat a.py", "    x = 1")], edit)
