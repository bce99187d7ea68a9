"""When launches are recorded and when replayed, with a recording that is only a list."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch

from swallowtail.optim.adam import replay as adam_replay
from swallowtail.optim.adam.replay import Replay


class Graph:
    """What stands for a CUDA graph here: calls since it was made."""

    def __init__(self) -> None:
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1


@pytest.fixture
def graphs(monkeypatch):
    made: list[Graph] = []

    @contextmanager
    def record(graph, **options):
        made.append(graph)
        yield

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", record)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    monkeypatch.setattr(torch.cuda, "Stream", object)
    return made


def test_the_second_call_records_and_others_replay(graphs):
    replay, runs = Replay(), []

    def call(key: str) -> None:
        replay(key, lambda: runs.append(key))

    for _ in range(5):
        call("here")
    assert runs == ["here", "here"]  # the second was recorded
    assert [graph.replays for graph in graphs] == [4]  # a recording does nothing by itself
    call("there")
    call("here")
    assert runs == ["here", "here", "there"]
    replay.clear()
    call("here")
    assert runs == ["here", "here", "there", "here"]


def test_few_recordings_are_kept_and_many_are_not_made(graphs, monkeypatch):
    monkeypatch.setattr(adam_replay, "MOST_KEPT", 2)
    replay = Replay()
    for key in "ababacc":  # c in place of b, which was used longest ago
        replay(key, lambda: None)
    replay("a", lambda: None)
    assert [graph.replays for graph in graphs] == [3, 1, 1]
    replay("b", lambda: None)
    assert len(graphs) == 4
    for key in range(10 * adam_replay.MOST_MADE):
        for _ in range(2):
            replay(key, lambda: None)
    assert len(graphs) == adam_replay.MOST_MADE


def test_what_cannot_be_recorded_is_run(graphs, monkeypatch):
    @contextmanager
    def refuse(graph, **options):
        yield
        raise RuntimeError("operation not permitted")

    monkeypatch.setattr(torch.cuda, "graph", refuse)
    replay, runs = Replay(), []
    replay("here", lambda: runs.append(1))
    with pytest.warns(RuntimeWarning, match="not recorded"):
        replay("here", lambda: runs.append(2))
    replay("here", lambda: runs.append(3))
    assert runs == [1, 2, 2, 3]  # once while recording, where it only launches, once in earnest
