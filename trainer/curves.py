"""curves.png: the metrics of a run, drawn at its end."""

from __future__ import annotations

from pathlib import Path


def draw_curves(rows: list[dict], path: Path, title: str) -> None:
    """Draw pass@k, reward, entropy, KL, clipping and gradient norm over the samples. rows: of metrics.jsonl."""
    from trainer.pictures import label_axis, panels  # matplotlib takes a second to import

    scores = [key for key in rows[0] if key.startswith("eval/pass@") and not key.endswith("_se")]
    shown = {  # title of a panel -> what is normal, and the metrics
        "held-out pass@k; band: 2 standard errors of pass@1": ("pass@1 rises", scores),
        "reward; pass rate of dynamic sampling": ("reward rises; pass rate stays above 0", ["reward", "pass_rate"]),
        "entropy (nats per token)": ("falls slowly, stays above 0", ["entropy"]),
        "KL (nats per token)": ("kl_ref grows until a reset; engine_kl stays near 0", ["kl_ref", "engine_kl"]),
        "share of tokens clipped": ("a few percent at most", ["clip_high_fraction", "clip_low_fraction"]),
        "gradient norm before clipping": ("no jumps by a factor of 10", ["grad_norm"]),
    }
    figure, axes = panels(3, 2, title)
    for axis, (panel, (normal, keys)) in zip(axes.flat, shown.items(), strict=True):
        for key in keys:
            points = [(row["samples"], row[key], row.get(f"{key}_se", 0)) for row in rows if key in row]
            if points:
                x, y, se = zip(*points, strict=True)
                axis.plot(x, y, lw=1.5, label=key.removeprefix("eval/"))
                low, high = ([a + sign * s for a, s in zip(y, se, strict=True)] for sign in (-2, 2))
                axis.fill_between(x, low, high, alpha=0.2)
        label_axis(axis, f"{panel}\n{f'normal: {normal}' if axis.lines else 'no data'}")
        if not axis.lines:
            axis.set_axis_off()
        elif len(axis.lines) > 1:
            axis.legend(frameon=False, fontsize="small")
    figure.savefig(path)
