"""A film shows the task moving, on a machine without a screen."""

import numpy as np
import pytest

from tsac.runs import video
from tsac.runs.settings import SpecError
from tsac.runs.video import film
from tsac.tasks.rendering import render_without_screen

imageio = pytest.importorskip("imageio.v2")


def sampled(task):
    random = np.random.default_rng(0)
    return lambda observation, state, starts: (random.uniform(-0.4, 0.4, (1, task)), None)


@pytest.mark.parametrize(
    ("task", "actions"), [("HalfCheetah-v4", 6), ("metaworld/reach-v3", 4), ("tsac/BoxPushingDense-v0", 7)]
)
def test_a_film_moves(task, actions, tmp_path, monkeypatch):
    monkeypatch.setattr(video, "SECONDS_AT_MOST", 1)
    try:
        render_without_screen()
    except RuntimeError:
        pytest.skip("there is nothing to draw with")
    frames = film(sampled(actions), task, {}, tmp_path / "clips" / "clip.mp4")
    assert frames >= 20
    pictures = [np.asarray(picture, dtype=float) for picture in imageio.get_reader(tmp_path / "clips" / "clip.mp4")]
    assert len(pictures) == frames
    assert np.ptp(pictures[0]) > 100
    assert np.abs(pictures[0] - pictures[-1]).mean() > 0.5


def test_another_ending_is_refused(tmp_path):
    with pytest.raises(SpecError, match="mp4"):
        film(sampled(6), "HalfCheetah-v4", {}, tmp_path / "clip.gif")
