"""docs/n.html: its formulas against brorl.py, loss.py and tools/noise_law.py, its figures, and a visit in a browser."""

import csv
import math
import re
import shutil
import statistics
import subprocess
import sys

import numpy as np
import pytest
import torch
from helpers import ROOT

import brorl
import loss as L
from tools import noise_law
from tools.intervals import with_interval

PAGE = ROOT / "docs/n.html"
TEXT = PAGE.read_text()
START_ADDRESS = PAGE.as_uri()
PANELS = ("group", "reach", "equation", "spend", "yours")
INSTALL = "pip install playwright && apt-get install -y --no-install-recommends chromium fonts-dejavu-core"

# -------------------------------------------------------------------------------------------- without a browser


def runs_of(name: str, **columns: float | str) -> list[list[dict[str, str]]]:
    """The runs of a CSV of docs/evidence/ whose columns have these values, each as its rows."""
    runs: dict[str, list[dict[str, str]]] = {}
    with (ROOT / f"docs/evidence/{name}.csv").open() as file:
        for row in csv.DictReader(file):
            if all(row[column] == str(value) for column, value in columns.items()):
                arm = ",".join(row[x] for x in ("seed", "arm", "N", "B", "learning_rate") if x in row)
                runs.setdefault(arm, []).append(row)
    return [*runs.values()]


def measured() -> dict[str, str]:
    """The figures of the page that were measured, from docs/evidence/."""
    limit = min(float(run[-1]["samples"]) for run in runs_of("rate_and_batch"))

    def end(n: int, b: int, rate: float) -> str:
        runs = runs_of("rate_and_batch", N=n, B=b, learning_rate=rate)
        columns = [[[float(row[x]) for row in run] for x in ("samples", "q_pos")] for run in runs]
        return with_interval([float(np.interp(limit, *both)) for both in columns])

    def first_share(arm: str) -> str:
        runs = runs_of("informative_share", world="compact", arm=arm)
        return f"{statistics.fmean(float(run[0]['pass_rate']) for run in runs):.0%}"

    start = float(runs_of("plateau", world="compact", arm="prorl")[0][0]["q_pos"])
    return {
        "plateau_start": f"{start:.3f}", "plateau_samples": f"{limit / 1e6:.1f}",
        "plateau_batch": end(16, 1024, 0.0001), "plateau_brorl": end(512, 32, 0.0001),
        "plateau_wide": end(512, 128, 3.5e-5), "kept_16": first_share("prorl"), "kept_512": first_share("brorl"),
    }  # fmt: skip


def test_measured_figures_are_those_of_the_csvs():
    """Makes impossible: a measured number in the page that docs/evidence/ does not give."""
    assert dict(re.findall(r'data-measured="(\w+)">([^<]*)<', TEXT)) == measured()


def test_the_page_is_one_file_whose_links_lead_somewhere():
    """Makes impossible: a library, font or picture from elsewhere, a link to a page that left."""
    for link in re.findall(r'(?:href|src)="([^"]*)"', TEXT):
        assert link in ("#", "data:,", "https://arxiv.org/abs/2510.01180") or (PAGE.parent / link).is_file(), link
    assert not re.search(r"@import|url\(|<link(?! rel=\"icon\")|<script |fetch\(|XMLHttpRequest|localStorage", TEXT)
    for page in ("README.md", "docs/paper.md", "docs/which_n.md", "lab/primer.md"):
        assert "n.html)" in (ROOT / page).read_text(), page


# ----------------------------------------------------------------------------------------------- in a real browser


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium."""
    playwright = pytest.importorskip("playwright.sync_api", reason=f"needs a browser: {INSTALL}")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not chromium:
        pytest.skip(f"needs a browser: {INSTALL}")
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def visit(browser):
    """Open the page at an address, and check at the end that it reported no error and asked for nothing."""
    pages, complaints = [], []

    def requested(request):
        if not request.url.startswith((START_ADDRESS, "data:")):
            complaints.append(request.url)

    def visit(address="", width=1280):
        page = browser.new_page(viewport={"width": width, "height": 900})
        pages.append(page)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", requested)
        page.goto(START_ADDRESS + address)
        return page

    yield visit
    for page in pages:
        page.close()
    assert not complaints


def sentence(page, panel: str) -> str:
    return " ".join(page.inner_text(f"#{panel} .sentence").split())


def wait_for_address(page, part: str):
    """The page writes its address a moment after the last change."""
    page.wait_for_function("part => location.hash.includes(part)", arg=part)


def tensor(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def seconds_of(inputs: dict) -> dict[int, float]:
    """t(N) of a drawn prompt by the page's cost of a token, at each N that the guess compares."""
    cost, prompt, response, p = inputs["cost"], inputs["prompt"], inputs["response"], inputs["p"]
    found, u = {}, cost["mini_batches"]
    for n in inputs["sizes"]:
        passes = sum(1 - (1 - 1 / u) ** n for _ in range(u))  # expected mini-batches with a rollout of the prompt
        trained = passes * prompt + n * response
        kept = 1 - p**n - (1 - p) ** n
        found[n] = (
            cost["read"] * prompt + cost["write"] * n * response + kept * (cost["score"] + cost["update"]) * trained
        )
    return found


def guess(seconds: dict[int, float]) -> dict:
    """The N whose noise in equal time is expected to be nearest to the least, for the prior of V_w / V_b."""
    ratios = np.geomspace(1, 1e5, 501)
    weight = np.exp(-(np.log(ratios / noise_law.USUAL) ** 2) / (2 * math.log(noise_law.SPREAD) ** 2))
    weight /= weight.sum()
    noise = np.array([noise_law.noise_at_equal_time(n, ratios, t) for n, t in seconds.items()])  # (sizes, ratios)
    excess = noise / noise.min(0)
    chosen = int(np.argmin(excess @ weight))
    middle, low, high = (float(ratios[np.argmax(weight.cumsum() > x)]) for x in (0.5, 0.025, 0.975))
    sure = float(weight[excess[chosen] <= 1.25].sum())  # no other N has over 20% less noise
    return {"n": [*seconds][chosen], "sure": sure, "ratio": middle, "ratio_low": low, "ratio_high": high}


def in_python(name: str, given: dict):
    """The value of a row of the page's selfTest(), by the Python function of this name."""
    match name:
        case "masses" | "mood" | "mass_balance":
            m = brorl.masses(tensor(given["p"]), torch.tensor(given["correct"]), torch.tensor(given["sampled"]))
            if name == "masses":
                return {key: x.item() for key, x in m._asdict().items()}
            if name == "mood":
                return brorl.mood(m, given["r_c"], given["r_w"]).item()
            found = brorl.mass_balance(m, given["eta"], given["n"], given["r_c"], given["r_w"])
            return {key: x.item() for key, x in found._asdict().items()} | {"total": found.total.item()}
        case "expected_unsampled_second_moment" | "total_unsampled_second_moment":
            return getattr(brorl, name)(tensor(given["p"]), given["n"]).tolist()
        case "pass_at_k":
            return brorl.pass_at_k(tensor(given["q_pos"]), given["k"]).item()
        case "informative":
            return 1 - given["p"] ** given["n"] - (1 - given["p"]) ** given["n"]
        case "mean_centred":
            correct, n = given["correct"], given["n"]
            found = L.mean_centred(tensor([[1.0] * correct + [0.0] * (n - correct)]))[0]
            return {"right": found[0].item() if correct else 1.0, "wrong": found[-1].item() if correct < n else -1.0}
        case "beta":  # E p^n is a product for a Beta distribution
            a, b = {"uniform": (1, 1), "hard": (0.3, 3), "easy": (3, 0.3)}[given["name"]]
            moment = [math.prod((x + i) / (a + b + i) for i in range(given["n"])) for x in (a, b)]
            return 1 - sum(moment)
        case "guess":
            return guess(seconds_of(given))
        case "pass_at_k_estimate" | "scaled_learning_rate":
            return getattr(brorl, name)(**given)
        case "best_n" | "noise_at_equal_cost" | "kept_share":
            return getattr(noise_law, name)(**given)
    raise AssertionError(f"no Python function for {name}")


@pytest.mark.slow
def test_the_formulas_are_those_of_python(visit):
    """Makes impossible: a sign, factor, mask, law or choice of N in the page that differs from the Python files."""
    rows, names = visit().evaluate("selfTest()"), set()
    for row in rows:
        expected, found = in_python(row["name"], row["inputs"]), row["value"]
        if isinstance(expected, dict):
            found = {key: found[key] for key in expected}
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-12), (row["name"], row["inputs"])
        names.add(row["name"])
    assert len(rows) > 200 and len(names) == 15
    for name in names - {"informative", "beta", "guess"}:  # the page calls it by the same name
        assert re.search(rf"(?:function|const) {name}\b", TEXT)


@pytest.mark.slow
def test_values_can_be_typed_and_pasted(visit):
    """Makes impossible: a typed value that is lost or out of range, counts that are read as rates."""
    page = visit()
    page.press("#N", "ArrowRight")
    assert page.input_value("#typed-N") != "16"
    page.fill("#typed-p", "0.25")
    page.press("#typed-p", "Enter")
    assert "p = 0.25" in sentence(page, "group")
    for typed, taken in (("5000", "1024"), ("nothing", "1024"), ("1", "2")):
        page.fill("#typed-N", typed)
        page.press("#typed-N", "Enter")
        assert page.input_value("#typed-N") == taken and f"groups of {taken} rollouts" in sentence(page, "group")
    page.select_option("#data", "pasted")
    assert "Paste values of pass@1" in sentence(page, "reach") and "NaN" not in page.inner_text("main")
    page.fill("#rates", "0.5, 8/16\n0/16; 1, 17/16 30")
    assert page.inner_text("#data-note").startswith("4 prompts. 2 numbers ignored")
    share = (0.5 + noise_law.kept_share([8, 0], 16, 2) * 2) / 4  # N = 2; p = 1 is never informative
    assert f"In this data set {share:.0%} of the prompts" in sentence(page, "reach")
    wait_for_address(page, "rates=")
    again = visit(page.evaluate("location.hash"))
    assert sentence(again, "reach") == sentence(page, "reach")


EXTREMES = {
    "N": (2, 1024), "p": (0.001, 0.999), "q": (0.02, 0.98), "ratio": (1, 10000), "cost": (0, 500),
    "prompt": (10, 32000), "response": (1, 32000),
    "data": ("uniform", "hard", "easy", "plateau", "pasted&rates=0/16 16/16", "pasted&rates=0 1", "pasted&rates=2/3"),
}  # fmt: skip
BROKEN = "N=x&p=&data=constructor&seed=-1&cost=1e999&other=1"


@pytest.mark.slow
def test_every_setting_draws(visit):
    """Makes impossible: NaN or an empty picture at an end of a slider, in a data set, or at a broken address."""
    page = visit()
    addresses = [f"{key}={value}" for key, values in EXTREMES.items() for value in values] + [BROKEN]
    addresses += ["N=2&p=0.001&q=0.98&ratio=10000&cost=500", "N=1024&p=0.999&q=0.02&ratio=1&prompt=32000&response=1"]
    for address in addresses:
        page.evaluate("address => { location.hash = address; take_address(); draw(); }", address)
        assert not re.search(r"NaN|Infinity|undefined|null|\$\{", page.inner_text("main")), address
        drawn = page.evaluate("all('svg').map(svg => [svg.childElementCount, svg.outerHTML.includes('NaN')])")
        assert all(count > 1 and not broken for count, broken in drawn) and len(drawn) == len(PANELS), address
    page.evaluate("address => { location.hash = address; take_address(); draw(); }", BROKEN)
    assert page.input_value("#typed-N") == "16" and page.input_value("#data") == "hard"


@pytest.mark.slow
def test_the_commands_of_the_page_can_be_typed(visit, tmp_path):
    """Makes impossible: a command of a tool that left, with a flag or a value that it refuses; one that cannot run."""
    from trainer.command_line import read_settings

    page = visit("#prompt=4000&response=20")
    tool, run = page.inner_text("#command").replace("\\\n", " ").strip().split("\npython ")
    own = {"M": f"{ROOT}/tiny/policy", "D.jsonl": f"{ROOT}/tiny/train.jsonl", "E.jsonl": f"{ROOT}/tiny/test.jsonl"}
    tool, run = ([own.get(word, word) for word in command.split()] for command in (tool, run))
    assert tool[:3] == ["python", "-m", "tools.which_n"] and {*own.values()} <= {*run}
    read_settings("", [*tool[3:], "--eval_data", own["E.jsonl"]], any_size=True)  # which_n adds it
    config, _ = read_settings("", run[1:])
    few = ["--prompts_per_step", "2", "--max_steps", "1", "--eval_problems", "1", "--eval_samples", "1"]
    few += ["--max_response_tokens", "12", "--eval_max_response_tokens", "12"]
    command = [sys.executable, *run, *few, "--output_dir", tmp_path, "--name", "run"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    assert (tmp_path / "run/model/model.safetensors").is_file()
    best = re.search(r"Start with N = (\d+)", sentence(page, "yours").replace("\N{NO-BREAK SPACE}", " "))[1]
    assert config.rollouts_per_prompt == int(best) and config.prompts_per_step == 32
    rate = brorl.scaled_learning_rate(1e-6, max(int(best) * 32, 8192), 8192)
    assert config.learning_rate == pytest.approx(rate, rel=0.05)
