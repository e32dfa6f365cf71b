"""When a line counts as used later."""

import numpy as np

from pipeline.linehead.heuristic import aftermath, heuristic_labels, used_lines
from pipeline.linehead.settings import HeuristicSettings
from tests.linehead.runs import lines, run_of, samples_in

ALONE = HeuristicSettings(margin_lines=0)
SHOWN = lines(
    "def alpha_beta(x):", "    return x + delta", "}", "./src/module.py", "unrelated text"
)


def used(*later, settings=ALONE, shown=SHOWN, patch=""):
    run = run_of(("", "cat f", shown), *later, patch=patch)
    return used_lines(shown, aftermath(run, 3, settings), settings).tolist()


def only(*places, n=5):
    return [i in places for i in range(n)]


def test_nothing_is_used_when_nothing_follows():
    assert used() == only()


def test_a_line_that_a_later_output_shows_again_is_used_line_numbers_or_not():
    assert used(("", "sed -n 2p f", "  12\t    return x + delta  \n")) == only(1)


def test_a_line_that_the_agent_quotes_in_text_or_in_a_command_is_used():
    assert used(("See `unrelated text` there.", "ls", "")) == only(4)
    assert used(("", "sed -i 's/return x + delta/return x/' f", "")) == only(1)


def test_a_short_line_proves_nothing():
    assert used(("a } b", "echo }", "}\n")) == only()


def test_a_listed_file_is_used_when_a_command_names_it():
    assert used(("", "cat src/module.py", "")) == only(3)
    assert used(("", "cat src/module.pyx", "")) == only()
    row = "-rw-r--r-- 1 root root 185 Nov 22  2024 setup.cfg\n"
    assert used(("", "cat setup.cfg", ""), shown=row) == only(0, n=1)


def test_a_definition_is_used_when_a_command_asks_for_its_name():
    assert used(("", "grep -rn alpha_beta src", "")) == only(0)


def test_lines_of_the_old_file_that_the_patch_shows_are_used():
    patch = lines("--- a/f", "+++ b/f", "@@ -1 +1 @@", " def alpha_beta(x):",
                  "-    return x + delta", "+    return x")  # fmt: skip
    assert used(patch=patch) == only(0, 1)


def test_the_horizon_ends_what_counts():
    idle = [("", f"true {i}", "") for i in range(3)]
    late = ("", "sed -n 2p f", "    return x + delta\n")
    near = HeuristicSettings(margin_lines=0, horizon_turns=3)
    assert used(*idle, late) == only(1)
    assert used(*idle, late, settings=near) == only()
    assert used(*idle[:2], late, settings=near) == only(1)


def test_neighbours_of_a_used_line_are_kept_with_it():
    later = ("", "sed -n 2p f", "    return x + delta\n")
    assert used(later, settings=HeuristicSettings(margin_lines=1)) == only(0, 1, 2)
    assert used(later, settings=HeuristicSettings(margin_lines=9)) == only(0, 1, 2, 3, 4)


def test_labels_name_the_output_and_how_it_came():
    run = run_of(("", "cat f", SHOWN), ("", "cat src/module.py", "x\n"))
    (first, second) = heuristic_labels(samples_in(run), ALONE)
    assert (first.sample_id, first.command, first.step_index) == ("run:3", "cat f", 1)
    assert first.kept.tolist() == only(3)
    assert second.kept.tolist() == [False]
    assert first.kept.dtype == np.bool_
