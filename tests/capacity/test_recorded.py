"""What memories hold, as it comes with the package."""

from mnemic.capacity import held
from mnemic.capacity.recorded import DIM, DRAWS, PAIRS, of
from mnemic.dsl.catalogue import names
from mnemic.pipeline import compile, read


def test_every_packaged_memory_has_been_measured_as_its_spec_is_now() -> None:
    """``python scripts/capacities.py NAME`` measures one anew."""
    assert [name for name in names() if of(read(name)) is None] == []


def test_what_is_kept_is_what_is_measured() -> None:
    kept, found = of(read("deltanet")), held(compile("deltanet"), DIM, PAIRS, DRAWS).to_json()
    assert kept is not None
    assert kept["held"] == found["held"]
    assert kept["recalled"] == [round(x, 4) for x in found["recalled"]]


def test_a_spec_of_ones_own_and_one_that_has_changed_have_no_measurement() -> None:
    spec = read("deltanet")
    assert of(spec.model_copy(update={"name": "mine"})) is None
    assert of(spec.model_copy(update={"bias": read("linear-attention").bias})) is None


def test_two_memories_of_slots_are_measured_too() -> None:
    found = of(read("gsa"))
    assert found is not None
    assert "refused" not in found
