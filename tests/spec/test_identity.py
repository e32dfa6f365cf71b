"""Run ids: science decides them, runtime does not, and every field is one or the other."""

import dataclasses

import pytest

from pipeline.fields.identity import canonical_json, digest_of, marks_of, science_of
from pipeline.spec.model import ModelSpec, ServeSpec
from pipeline.spec.run import request_seed, slugged
from pipeline.spec.sweep import SweepSpec
from tests.spec.freeze import spec_types


@pytest.mark.parametrize("spec_type", sorted(spec_types(SweepSpec), key=lambda t: t.__name__))
def test_every_field_of_a_spec_is_science_or_runtime(spec_type):
    unmarked = [name for name, mark in marks_of(spec_type).items() if mark is None]
    assert not unmarked, f"{spec_type.__name__}: mark {unmarked} Science[...] or Runtime[...]"


def test_the_walk_reaches_specs_inside_mappings_unions_and_tuples():
    names = {t.__name__ for t in spec_types(SweepSpec)}
    assert {"ModelSpec", "SimSpec", "PlanPrune", "FullHistory", "PoolSpec"} <= names


def test_runtime_fields_do_not_change_the_science():
    model = ModelSpec(name="m", kind="vllm", repo="org/m")
    faster = dataclasses.replace(
        model,
        base_url="http://node7:8000/v1",
        serve=ServeSpec(tensor_parallel=4, max_num_seqs=256, flags=("--enforce-eager",)),
    )
    assert science_of(model) == science_of(faster)


@pytest.mark.parametrize(
    "change",
    [
        {"repo": "org/other"},
        {"revision": "abc"},
        {"context_length": 16_384},
        {"mode": "text"},
        {"serve": ServeSpec(reasoning_parser="qwen3")},
    ],
)
def test_a_science_field_changes_the_science(change):
    model = ModelSpec(name="m", kind="vllm", repo="org/m")
    assert science_of(model) != science_of(dataclasses.replace(model, **change))


def test_canonical_json_ignores_the_order_of_keys_and_refuses_nan():
    assert canonical_json({"b": 1, "a": [2]}) == canonical_json({"a": [2], "b": 1})
    with pytest.raises(ValueError, match="JSON"):
        canonical_json({"a": float("nan")})


def test_an_unmarked_field_is_refused_by_name():
    @dataclasses.dataclass(frozen=True)
    class Careless:
        temperature: float = 0.0

    with pytest.raises(TypeError, match="temperature"):
        science_of(Careless())


def test_request_seeds_repeat_and_differ_by_step_and_kind():
    first = request_seed(0, "toy__a-1", "step", 1)
    assert first == request_seed(0, "toy__a-1", "step", 1)
    others = [
        request_seed(1, "toy__a-1", "step", 1),
        request_seed(0, "toy__b-1", "step", 1),
        request_seed(0, "toy__a-1", "cleanup", 1),
        request_seed(0, "toy__a-1", "step", 2),
    ]
    assert len({first, *others}) == 5
    assert all(0 <= seed < 2**31 for seed in others)


def test_slugs_are_safe_in_file_names():
    assert slugged("temperature=0.7/a b") == "temperature_0.7_a_b"
    assert digest_of({"a": 1}) == digest_of({"a": 1})
