"""One self-contained page about sessions: the answer, and for the dearest what made them so."""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from pipeline.plural import plural
from pipeline.replaying.money_answer import amount
from pipeline.sessions.facts import SessionFacts

MAX_SESSIONS = 20
"""Sessions with a section of their own."""
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 720, 260, 70, 40
_RIGHT = 150
"""For the names of the lines."""
_COLORS = ("#1a1a1a", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_MAX_POINTS = 400


class Dearest:
    """Keeps the dearest sessions, however many come."""

    def __init__(self) -> None:
        self._kept: list[tuple[float, int, SessionFacts]] = []
        self.n_seen = 0

    def take(self, found: Iterable[SessionFacts]) -> None:
        """Take some more."""
        for facts in found:
            self.n_seen += 1
            heapq.heappush(self._kept, (facts.replayed_cost, -self.n_seen, facts))
            if len(self._kept) > MAX_SESSIONS:
                heapq.heappop(self._kept)

    @property
    def sessions(self) -> list[SessionFacts]:
        """Those kept, the dearest first."""
        return [facts for _, _, facts in sorted(self._kept, reverse=True)]


def session_page(
    answer: Sequence[str],
    table: Sequence[str],
    check: Sequence[str],
    dearest: Dearest,
    *,
    currency: str,
) -> str:
    """Return the page.

    Args:
        answer: the sentences in money.
        table: lines of the table of all arms.
        check: sentences of the self-check.
        dearest: the sessions to show.
        currency: of all amounts.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["plural"] = plural
    environment.filters["amount"] = lambda cost: amount(cost, currency)
    source = files("pipeline.sessions").joinpath("page.html.j2").read_text("utf-8")
    shown = dearest.sessions
    return environment.from_string(source).render(
        answer=answer,
        table=table,
        check=check,
        currency=currency,
        sessions=[{"facts": facts, "svg": Markup(_svg(facts))} for facts in shown],
        n_hidden=dearest.n_seen - len(shown),
    )


def _svg(facts: SessionFacts) -> str:
    """Return the costs as they grew, as a picture; every text in it is escaped."""
    n_calls = max((len(costs) for costs in facts.by_arm.values()), default=0)
    top = max((costs[-1] for costs in facts.by_arm.values() if costs), default=0.0) or 1.0
    right, floor = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def x(call: float) -> float:
        return _LEFT + (right - _LEFT) * call / max(1, n_calls - 1)

    def y(cost: float) -> float:
        return floor - (floor - 10) * cost / top

    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
        f"<title>Cost of {escape(facts.name)} up to each call</title>",
        f'<path d="M{_LEFT} 10V{floor}H{right}" fill="none" stroke="#595959"/>',
        f'<text x="{_LEFT - 6}" y="{y(top) + 4:.0f}" text-anchor="end">{top:.3g}</text>',
        f'<text x="{_LEFT - 6}" y="{floor + 4}" text-anchor="end">0</text>',
        f'<text x="{right}" y="{_HEIGHT - 6}" text-anchor="end">call {n_calls}</text>',
    ]
    for number, (arm, y_text) in enumerate(_label_places(facts.by_arm, y).items()):
        costs, color = facts.by_arm[arm], _COLORS[number % len(_COLORS)]
        step = max(1, len(costs) // _MAX_POINTS)
        places = sorted({*range(0, len(costs), step), len(costs) - 1})
        line = " ".join(f"{x(k):.1f},{y(costs[k]):.1f}" for k in places)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.6"/>')
        label = f'<text x="{right + 6}" y="{y_text:.1f}" fill="{color}">{escape(arm)}</text>'
        parts.append(label)
    for one in facts.breaks:
        parts.append(f'<path d="M{x(one.call):.1f} {floor + 3}v9" stroke="#d55e00"/>')
    for call in facts.compactions:
        parts.append(f'<path d="M{x(call):.1f} {floor + 14}l-4 8h8z" fill="#595959"/>')
    return "".join([*parts, "</svg>"])


def _label_places(
    by_arm: Mapping[str, Sequence[float]], y: Callable[[float], float]
) -> dict[str, float]:
    """Return where each line's name stands: at its end, moved so that none covers another."""
    ends = sorted((y(costs[-1]) + 4, arm) for arm, costs in by_arm.items() if costs)
    placed: dict[str, float] = {}
    free = 0.0
    for place, arm in ends:
        free = max(place, free)
        placed[arm] = free
        free += 13
    return {arm: placed[arm] for arm in by_arm if arm in placed}
