"""Which states are trained, and how they are laid into rows."""

import random

import torch

from engine.decode.trajectory import StepState, Trajectory
from finetune.rows import make_row, pack
from finetune.samples import Sample, select


def made(block: int, step: int, start: int, undecided: list[int], length: int = 4) -> StepState:
    flags = torch.tensor([i in undecided for i in range(length)])
    return StepState(block, step, start, torch.zeros(length, dtype=torch.long), flags, None, 0.0)


def test_selection_pairs_neighbours_that_both_have_something_to_train() -> None:
    steps = (
        made(0, 0, 4, [1, 2, 3]), made(0, 1, 4, [2]), made(0, 2, 4, []),  # a settling state
        made(1, 0, 8, [0, 1, 2, 3]), made(1, 1, 8, [2, 3]), made(1, 2, 8, [3]), made(1, 3, 8, []),
    )  # fmt: skip
    # The end token stands at position 9: what lies behind it is not trained.
    final = (1, 2, 3, 4, 5, 6, 7, 8, 5, 99, 99, 99)
    sample = select(Trajectory((1, 2, 3, 4, 5), final, 4, steps), (99,), 12, random.Random(0))
    assert sample is not None
    assert [(s.block, s.step) for s in sample.states] == [(0, 0), (0, 1), (1, 0)]
    assert sample.trained == ((1, 2, 3), (2,), (0, 1))
    assert sample.pairs == ((0, 1),)
    row = make_row([sample])
    assert row.targets.tolist() == [6, 7, 8, 7, 5, 99]
    assert row.lengths == (8,)
    assert row.tokens == 8 + 3 * 4


def test_a_window_is_contiguous_and_every_state_as_likely() -> None:
    steps = tuple(made(0, step, 0, [0]) for step in range(10))
    trajectory = Trajectory((), (1, 2, 3, 4), 4, steps)
    counts = [0] * 10
    for seed in range(2000):
        sample = select(trajectory, (), 4, random.Random(seed))
        assert sample is not None
        taken = [state.step for state in sample.states]
        assert len(taken) == 4
        assert len(sample.pairs) in (2, 3)
        for step in taken:
            counts[step] += 1
    assert min(counts) > 700
    assert max(counts) < 900


def test_nothing_to_train_is_no_sample() -> None:
    trajectory = Trajectory((1,), (1, 99, 99, 99), 4, (made(0, 0, 0, [2, 3]), made(0, 1, 0, [])))
    assert select(trajectory, (99,), 12, random.Random(0)) is None


def sample_of(final_ids: tuple[int, ...], states: int, start: int) -> Sample:
    steps = tuple(made(start // 4, step, start, [0]) for step in range(states))
    sample = select(Trajectory((), final_ids, 4, steps), (), 12, random.Random(0))
    assert sample is not None
    return sample


def test_rows_are_few_and_of_about_equal_cost() -> None:
    samples = [sample_of((1, 2, 3, 4), n, 0) for n in range(1, 13)]
    costs = [row.tokens for row in pack(samples, 100)]
    assert sum(costs) == sum(s.cost for s in samples) == 4 * 78
    assert len(costs) == 4
    assert max(costs) <= 100
    # In order of their contexts, which are alike here; a smaller limit takes a row more.
    assert len(pack(samples, max(costs) - 1)) == 5


def test_a_sample_that_is_longer_than_a_row_has_one_to_itself() -> None:
    rows = pack([sample_of((1, 2, 3, 4), n, 0) for n in (1, 12, 1)], 20)
    assert [row.tokens for row in rows] == [4, 48, 4]


def test_answers_share_the_clean_blocks_that_they_begin_with_alike() -> None:
    prompt = tuple(range(8))
    samples = [
        sample_of((*prompt, 8, 9, 10, 11, 12, 13, 14, 15), 1, 12),
        sample_of((*prompt, 8, 9, 10, 99, 12, 13, 14, 15), 2, 12),
        sample_of((*prompt, 8, 9, 10, 11, 12, 13, 14, 16), 1, 12),
        sample_of((50, *prompt[1:], 8, 9, 10, 11), 1, 8),
        sample_of((*prompt, 8, 9, 10, 99), 1, 4),
    ]
    (row,) = pack(samples, 1000)
    # The third's context is all the first's; the last needs no more than the prompt's first block.
    assert row.clean.tolist() == [*prompt, 8, 9, 10, 11, 8, 9, 10, 99, 50, *prompt[1:]]
    assert row.lengths == (4, 12, 12, 12, 8)
    assert row.first.tolist() == [*[0] * 4, *[1] * 4, *[1] * 4, *[3] * 4, *[4] * 8]
    assert row.last.tolist() == [*[4] * 4, *[4] * 4, *[3] * 4, *[4] * 4, *[5] * 8]
    assert row.place.tolist() == [*range(12), *range(8, 12), *range(8)]
