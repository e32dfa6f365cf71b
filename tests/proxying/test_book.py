"""What a proxy has on disk of runs under way, and who finishes them."""

from dataclasses import replace
from pathlib import Path

from pipeline.proxying.book import Book
from pipeline.records.layout import Layout
from pipeline.records.run_record import RunRecord
from tests.records.samples import full_run


def book(out: Path) -> Book:
    return Book(Layout(out), "proxy", lambda run: run)


def parts(run: RunRecord) -> list[RunRecord]:
    half = len(run.messages) // 2
    first = replace(run, messages=run.messages[:half], calls=run.calls[:1], decisions=())
    return [first, replace(run, messages=run.messages[half:], calls=run.calls[1:])]


def test_a_run_that_could_not_be_written_is_left_to_the_next_proxy(tmp_path: Path):
    run, one = full_run(), book(tmp_path)
    for part in parts(run):
        one.add_part(part)
    one.close()
    other = book(tmp_path)
    (found,) = other.tend()
    other.close()
    assert (found.messages, found.calls) == (run.messages, run.calls)
    assert found.decisions == run.decisions
    assert not list((tmp_path / "spool").iterdir())


def test_a_spool_of_a_proxy_that_lives_is_left_alone(tmp_path: Path):
    one, other = book(tmp_path), book(tmp_path)
    one.add_part(full_run())
    assert other.tend() == []
    other.close()
    assert len(list((tmp_path / "spool").glob("*.journal"))) == 1
    one.add_run(full_run())
    one.close()


def test_a_run_that_was_written_is_not_written_again_from_its_spool(tmp_path: Path):
    """A proxy may be killed after it wrote a run and before it removed the spool."""
    one = book(tmp_path)
    one.add_part(full_run())
    one.close()
    spool = tmp_path / "spool" / "proxy.journal"
    kept = spool.read_bytes()
    other = book(tmp_path)
    assert len(other.tend()) == 1
    other.close()
    spool.write_bytes(kept)
    assert book(tmp_path).tend() == []


def test_a_torn_last_part_costs_that_part_alone(tmp_path: Path):
    one = book(tmp_path)
    first, second = parts(full_run())
    one.add_part(first)
    one.add_part(second)
    one.close()
    spool = tmp_path / "spool" / "proxy.journal"
    spool.write_bytes(spool.read_bytes()[:-7])
    (found,) = book(tmp_path).tend()
    assert (found.messages, found.calls) == (first.messages, first.calls)
