from taskgraph.graph import Graph, Task
from taskgraph.scheduler import Backoff, Scheduler, State, summary, timetable


def always(task, attempt):
    return True


def diamond():
    return Graph.of(
        [
            Task("a", seconds=2),
            Task("b", ("a",), seconds=3),
            Task("c", ("a",), seconds=4),
            Task("d", ("b", "c"), seconds=1),
        ]
    )


def test_one_worker_does_one_thing_at_a_time():
    scheduler = Scheduler(diamond(), always)
    scheduler.run()
    assert scheduler.now == 10


def test_two_workers_share():
    scheduler = Scheduler(diamond(), always, workers=2)
    outcomes = scheduler.run()
    assert scheduler.now == 7
    assert outcomes["b"].worker != outcomes["c"].worker


def test_a_task_starts_when_all_it_needs_is_done():
    outcomes = Scheduler(diamond(), always, workers=2).run()
    assert outcomes["d"].started == outcomes["c"].ended


def test_what_needs_a_failed_task_is_skipped():
    outcomes = Scheduler(diamond(), lambda task, attempt: task.name != "a").run()
    assert outcomes["a"].state is State.FAILED
    assert {outcomes[name].state for name in "bcd"} == {State.SKIPPED}
    assert outcomes["d"].blamed == "a"


def test_cached_tasks_take_no_time():
    scheduler = Scheduler(diamond(), always, is_cached=lambda task: task.name in "ab")
    outcomes = scheduler.run()
    assert outcomes["a"].state is State.CACHED
    assert scheduler.now == 5


def test_a_task_without_retries_runs_once():
    outcomes = Scheduler(Graph.of([Task("a")]), lambda task, attempt: False).run()
    assert outcomes["a"].attempts == 1


def test_the_first_attempt_never_waits():
    assert Backoff(first=5).before(1) == 0


def test_backoff_has_a_limit():
    assert Backoff(first=5, limit=30).before(10) == 30


def test_summary_counts_every_state():
    assert summary(Scheduler(diamond(), always).run()) == {
        "done": 4, "cached": 0, "failed": 0, "skipped": 0,
    }


def test_timetable_has_a_line_for_each_task():
    assert len(timetable(Scheduler(diamond(), always).run()).splitlines()) == 4
