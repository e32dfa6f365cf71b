"""A finished sweep stays finished: what a new version adds leaves the ids of old runs alone."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import yaml

from pipeline.arms.observation_mask import ObservationMask
from pipeline.fields.identity import (
    Science,
    added_science,
    digest_of,
    identity_of,
    methods_of,
    part_name,
    science_of,
)
from pipeline.planning.config import known, sweep_spec
from pipeline.spec.parse import parsed
from pipeline.spec.sweep import SweepSpec, renamed
from tests.spec import freeze

REMEDY = (
    "a field that was added is declared with added_science(pin); for a new part or pin run "
    "`python -m tests.spec.freeze`"
)


@dataclass(frozen=True, kw_only=True)
class Mask:
    kind: Science[str] = "mask"
    keep: Science[int] = 10


@dataclass(frozen=True, kw_only=True)
class Window:
    width: Science[int] = 4


@dataclass(frozen=True, kw_only=True)
class MaskLater:
    """`Mask` as a later version of the code has it."""

    kind: Science[str] = "mask"
    keep: Science[int] = 10
    polling: Science[int] = added_science(0)
    rules: Science[dict[str, int]] = added_science({})
    window: Science[Window] = added_science(Window())


@dataclass(frozen=True, kw_only=True)
class MaskByOtherRules(MaskLater):
    METHOD: ClassVar[int] = 2


@dataclass(frozen=True, kw_only=True)
class Holder:
    mask: Science[MaskLater | MaskByOtherRules]


def test_an_added_field_at_its_pin_is_not_hashed():
    assert identity_of(MaskLater()) == identity_of(Mask())
    assert identity_of(MaskLater(keep=3)) == identity_of(Mask(keep=3))


@pytest.mark.parametrize(
    "change", [{"polling": 1}, {"rules": {"a": 1}}, {"window": Window(width=1)}]
)
def test_an_added_field_with_another_value_is_hashed(change):
    assert identity_of(MaskLater(**change)) != identity_of(Mask())


def test_the_whole_science_still_shows_fields_at_their_pin():
    assert science_of(MaskLater())["polling"] == 0


def test_two_values_of_a_pinned_mapping_are_two_objects():
    assert MaskLater().rules is not MaskLater().rules


def test_a_raised_method_changes_the_runs_that_hold_the_part_and_no_other():
    before, after = Holder(mask=MaskLater()), Holder(mask=MaskByOtherRules())
    assert identity_of(before) != identity_of(after)
    assert methods_of(before) == {}
    assert methods_of(after) == {"mask": 2}
    assert identity_of(Mask()) == identity_of(MaskLater())


def test_a_raised_method_is_hashed_where_the_part_is_at_its_pin():
    @dataclass(frozen=True, kw_only=True)
    class Outer:
        mask: Science[MaskByOtherRules] = added_science(MaskByOtherRules())

    assert identity_of(Outer())["mask"]["METHOD"] == 2
    assert identity_of(Outer(), {}) == {}


def test_under_the_methods_of_a_lock_a_part_has_the_identity_it_had_then():
    now = Holder(mask=MaskByOtherRules())
    assert identity_of(now, {}) == identity_of(Holder(mask=MaskLater()))
    assert identity_of(now, {"mask": 2}) == identity_of(now)


@pytest.mark.parametrize("name", freeze.LOCKED)
def test_what_a_lock_held_leads_to_the_ids_that_its_runs_have(name):
    locked = yaml.safe_load((freeze.GOLDEN / f"{name}.yaml").read_text())
    ids, was = freeze.run_ids(parsed(SweepSpec, renamed(locked))), freeze.golden(freeze.IDS)[name]
    # The sweep may have gained arms since.
    assert ids == {key: was.get(key) for key in ids}


@pytest.mark.parametrize("name", freeze.LOCKED)
def test_a_lock_of_the_first_version_still_leads_to_the_runs_it_locked(name):
    locked = yaml.safe_load((freeze.FIRST / f"{name}.yaml").read_text())
    spec = parsed(SweepSpec, renamed(locked))
    assert freeze.run_ids(spec, {}) == freeze.golden(freeze.FIRST / "run_ids.json")[name]


@pytest.mark.parametrize("name", sorted(freeze.golden(freeze.IDS)))
def test_a_sweep_of_conf_gives_the_ids_that_finished_runs_have(name):
    assert name in known("sweep"), f"conf/sweep/{name}.yaml is gone: its folders cannot be resumed"
    ids, was = freeze.run_ids(sweep_spec([f"+sweep={name}"])), freeze.golden(freeze.IDS)[name]
    changed = sorted(key for key in was if ids.get(key) != was[key])
    assert not changed, (
        f"{name}: other ids for {changed[:3]} ({len(changed)} of {len(was)} cells); {REMEDY}. "
        "If runs are meant to be made again: freeze --replace and a line in CHANGELOG.md"
    )


def test_every_field_is_hashed_as_ever_or_pinned():
    assert freeze.hashed_fields() == freeze.golden(freeze.FIELDS), REMEDY


def test_pins_never_change():
    assert freeze.pins() == freeze.golden(freeze.PINS), REMEDY


def test_parts_have_names_of_their_own():
    names = Counter(map(part_name, freeze.spec_types(SweepSpec)))
    assert [name for name, n in names.items() if n > 1] == []


def test_a_policy_is_named_by_its_kind():
    assert part_name(ObservationMask) == "observation_mask"
    assert digest_of(identity_of(ObservationMask())) != digest_of(
        identity_of(replace(ObservationMask(), keep_last_turns=3))
    )
