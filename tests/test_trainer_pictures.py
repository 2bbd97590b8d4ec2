"""trainer/pictures.py: the picture at the end of a run."""

from matplotlib.figure import Figure

from trainer.pictures import draw_curves


def test_curves_are_drawn_from_a_run_without_updates(tmp_path, monkeypatch):
    """Makes impossible: a crash at the end of a run that had no informative prompt; axes around nothing."""
    drawn, savefig = [], Figure.savefig

    def save(figure, path):
        drawn.extend(axis.axison for axis in figure.axes)
        savefig(figure, path)

    monkeypatch.setattr(Figure, "savefig", save)
    rows = [{"step": i, "samples": 8 * i, "reward": 0.0, "pass_rate": 0.0} for i in range(1, 3)]
    rows = [{"step": 0, "samples": 0, "eval/pass@1": 0.1, "eval/pass@1_se": 0.1}, *rows]
    draw_curves(rows, tmp_path / "curves.png", "a run")
    assert (tmp_path / "curves.png").stat().st_size > 10_000 and drawn == [True] * 2 + [False] * 4
