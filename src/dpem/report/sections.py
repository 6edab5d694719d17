"""The sections of a report: plain sentences around released numbers. Which model it is, they ask the estimator."""

from __future__ import annotations

import math
import re
from typing import Any

from dpem._html import measured, number, percent, section, table, text
from dpem.fitting.summary import Estimates, FitSummary, Profile
from dpem.privacy import Guarantee
from dpem.report import facts
from dpem.report.charts import COLUMNS, DRAWN, estimate_chart, price_bar, profile_chart

#: Rows above which a table is folded away.
FOLDED = 12

_PAPER = (
    "Zhe Zhang and Linjun Zhang, <cite>High-Dimensional Differentially-Private EM Algorithm: Methods and Near-Optimal "
    "Statistical Guarantees</cite>, Department of Statistics, Rutgers University."
)


def banner(guarantee: Guarantee) -> str:
    """What nobody may overlook, if the fit is not private."""
    if guarantee.private:
        return ""
    if math.isinf(guarantee.epsilon):
        reason = "No noise was added (ε = ∞): this is the non-private reference fit, and it protects nobody."
    else:
        reason = (
            "The noise came from a seed (random_state): whoever knows the seed can subtract it. This page shows a "
            "simulation, and what it would promise with private noise."
        )
    return f'<p class="banner" role="alert">NOT PRIVATE. {reason}</p>'


def opening(model: Any, summary: FitSummary, scaler: Any | None, about: facts.About) -> str:
    """The first screen: the joint statement, the fit check, the occasion."""
    plan, joint = model.plan_, facts.promised(model, scaler)
    epsilon = facts.rounded_up(joint.epsilon)
    sentence = f"A {text(summary.name)} was fitted to {plan.n:,} rows, and {text(summary.released)} were released"
    if joint.private:
        both = "model and scaling together" if scaler is not None else "the whole fit"
        promise = f"ε = {number(epsilon, 5)}, δ = {number(joint.delta)}"
        sentence += f"; any {text(joint.unit)} stays hidden within <strong>{promise}</strong> ({both})"
    else:
        sentence += ", <strong>without privacy</strong>"
    if not summary.useful:
        sentence += "; <strong>as planned, expect little more than noise</strong>"
    tiles = [
        ("ε", number(epsilon, 5)),
        ("δ", number(joint.delta)),
        ("protects", "one row" if joint.rows_per_person == 1 else "one person"),
        ("rows", f"{plan.n:,}"),
        ("columns", f"{plan.d:,}"),
    ]
    figures = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in tiles)
    lines = "".join(f"<div><dt>{name}</dt><dd>{text(value)}</dd></div>" for name, value in about.lines())
    return "\n".join(
        part
        for part in (
            f'<p class="verdict">{sentence}.</p>',
            _uncounted(model, scaler),
            f'<dl class="figures">{figures}</dl>',
            fit_check(getattr(model, "fit_check_", None)),
            f'<dl class="about">{lines}</dl>' if lines else "",
        )
        if part
    )


def _uncounted(model: Any, scaler: Any | None) -> str:
    behind = getattr(model, "scaler_", None)
    if scaler is not None or behind is None:
        return ""
    return (
        '<p class="check poor">The columns were scaled first, by the scaler with the fingerprint '
        f"<code>{text(behind)}</code>. That was released at a price of its own, which the statement here does not "
        "count: make this report with the scaler to have both in one.</p>"
    )


def fit_check(check: Any | None) -> str:
    """What the fit check found, good or bad."""
    if check is None:
        return ""
    error = f"{number(check.lead)} per row in log-density, standard error {number(check.standard_error)}"
    kind = "good" if check.better else "poor"
    advice = f" {text(check.advice)}" if check.advice else ""
    return f'<p class="check {kind}"><strong>Fit check.</strong> {text(check.verdict)} ({error}).{advice}</p>'


def estimates(summary: FitSummary) -> str:
    """Every estimate in the table's units, with its interval."""
    found = summary.estimates
    if found is None:
        return section("Estimates", "<p>No coefficient was larger than what noise alone explains.</p>")
    apart = (
        found.scale is None and summary.profile is not None
    )  # shares, centres, spreads: no picture holds them together
    chart = "" if apart else f"<figure>\n{estimate_chart(found)}\n<figcaption>{_caption(found)}</figcaption>\n</figure>"
    lead = f'<p class="note">{_caption(found, drawn=False)}</p>' if apart else ""
    known = not all(math.isnan(v) for v in found.sampling)
    parts = [("privacy", found.privacy)] if known else []
    parts += [("misfit", found.misfit)] if known and found.misfit is not None else []
    head = (found.what, "estimate", "95 % interval", "standard error", *(f"variance from {name}" for name, _ in parts))
    rows = []
    for j, name in enumerate(found.names):
        error = float(found.error[j])
        value, low, high = (measured(float(part[j]), error) for part in (found.value, found.low, found.high))
        ends = f"{low} to {high}"
        exact = number(float(found.value[j]), 5)
        cells = (text(name), value, ends, number(error, 2)) if error > 0 else (text(name), exact, "none", "none")
        rows.append((*cells, *(percent((float(own[j]) / error) ** 2) if error > 0 else "–" for _, own in parts)))
    made = table(f"Every {found.what}, in the table’s own units.", head, rows, range(1, len(head)))
    if len(rows) > (DRAWN if apart else FOLDED):
        made = f"<details>\n<summary>All {len(rows):,} {found.what}s as a table</summary>\n{made}\n</details>"
    return section("Estimates", chart, lead, made)


def _caption(found: Estimates, *, drawn: bool = True) -> str:
    words = [_sentence(found.note or "Intervals hold sampling error and privacy noise together.")]
    if not drawn:
        return words[0]
    if found.scale is None:
        words.append("Each lane has a scale of its own; the line in its middle is 0.")
    elif found.scaled:
        words.append(f"All lanes have one scale: {text(found.scaled)}.")
    if found.limit is not None:
        words.append(f"Dashed lines at ±{number(found.limit)}, as planned: {text(found.limit_is)}.")
    if len(found.names) > DRAWN:
        words.append(f"The first {DRAWN} of {len(found.names):,} are drawn.")
    return " ".join(words)


def _sentence(words: str) -> str:
    """The words as a sentence of their own."""
    return text(words[:1].upper() + words[1:].rstrip(".") + ".")


def groups(summary: FitSummary) -> str:
    """What is typical of each group that a model found."""
    profile = summary.profile
    if profile is None:
        return ""
    pictures = "\n".join(f'<div class="group">\n{picture}\n</div>' for picture in profile_chart(profile))
    head = ("column", *profile.groups)
    rows = [
        (text(name), *(_cell(profile, k, j) for k in range(len(profile.groups))))
        for j, name in enumerate(profile.columns)
    ]
    made = table("What is typical of each group.", head, rows, range(1, len(head)))
    folded = f"<details>\n<summary>Every column of every group as a table</summary>\n{made}\n</details>"
    lead = f"<p>{text(profile.words)}</p>" if profile.words else ""
    return section("The groups", lead, pictures, f'<p class="note">{_lane_words(profile)}</p>', folded)


def _lane_words(profile: Profile) -> str:
    if profile.bars:
        what = "A bar is the probability, from 0 to 100 %"
    else:
        what = "A dot is the centre, the bar one standard deviation around, over the public bounds of the column"
    if profile.spread is None and not profile.bars:
        what = "A dot is this group’s"
    words = f"{what}; grey marks are the other groups."
    return words + (f" The {COLUMNS} columns that differ most." if len(profile.columns) > COLUMNS else "")


def _cell(profile: Profile, k: int, j: int) -> str:
    value = float(profile.centre[k, j])
    if profile.bars:
        return percent(value)
    return number(value, 4) + ("" if profile.spread is None else f" ± {number(float(profile.spread[k, j]))}")


def extra(summary: FitSummary) -> str:
    """One more table, where the estimator has one."""
    if summary.extra is None:
        return ""
    own = summary.extra
    rows = [tuple(number(c, 5) if isinstance(c, float) else text(c) for c in row) for row in own.rows]
    made = table(text(own.caption), [text(h) for h in own.head], rows, range(1, len(own.head)))
    return section(own.heading, f"<p>{text(own.lead)}</p>", made)


def promise(model: Any, scaler: Any | None) -> str:
    """The guarantee, in words and in symbols: one statement for all that was released."""
    guarantee = facts.promised(model, scaler)
    if math.isinf(guarantee.epsilon):
        return section("The guarantee", f"<blockquote>{statement(guarantee)}</blockquote>")
    shown, delta = number(facts.rounded_up(guarantee.epsilon), 5), number(guarantee.delta, 4)
    unit = facts.unit_in_words(model.plan_.rows_per_person)
    factor = number(math.exp(min(guarantee.epsilon, 700.0)), 4)
    return section(
        "The guarantee",
        _parts(model, scaler),
        "<h3>In plain words</h3>",
        f"<p>Take {unit.taken} and put {unit.others} place. What this page shows, and "
        f"everything else the fit published, would have come out almost as likely as it did: nothing becomes more than "
        f"{factor} times as likely (e<sup>ε</sup>), and {delta} on top of that. "
        f"Someone who knows every other row, and has two candidates for {unit.these}, equally "
        f"likely before, guesses right in {facts.guesses(guarantee.epsilon, guarantee.delta)}; a coin does in 50.</p>",
        "<h3>In symbols</h3>",
        '<p class="formula">P(<i>M</i>(<i>D</i>) ∈ <i>S</i>) ≤ e<sup>ε</sup> · P(<i>M</i>(<i>D</i>′) ∈ <i>S</i>) + δ'
        f"<br>ε = {shown}, δ = {delta}</p>",
        f"<p>for all tables <i>D</i> and <i>D</i>′ of the same length that differ in {unit.differs} "
        f"({text(guarantee.neighbours)} neighbours) and all sets <i>S</i> of outcomes of the fit <i>M</i>.</p>",
        f"<h3>The statement to publish</h3>\n<blockquote>{statement(guarantee)}</blockquote>",
    )


def statement(guarantee: Guarantee) -> str:
    """The sentence to publish, letter for letter; a number is not broken at the end of a line."""
    return re.sub(r"\b\d[\d.]*e-\d+", r'<span class="whole">\g<0></span>', text(guarantee))


def _parts(model: Any, scaler: Any | None) -> str:
    if scaler is None:
        return ""
    both = (scaler.guarantee_, model.guarantee_)
    one, other = (f"ε = {number(g.epsilon, 4)}, δ = {number(g.delta, 4)}" for g in both)
    return (
        f"<p>The columns were scaled first. Their centres and spreads were released at {one}, the model at {other}; "
        "what follows is what both promise together, if both were fitted to the same rows. Coefficients are in the "
        "scaled units, and new rows must be scaled with the same numbers.</p>"
    )


def asked(model: Any) -> str:
    """What was asked of the data and what each answer cost."""
    questions = facts.questions(model)
    price = model.guarantee_.price
    paid = math.isfinite(price.rho)
    lead = (
        "<p>The fit saw no row. It put these questions to a curator, which charged the price of each, summed over the "
        "rows with every row’s influence clipped, added noise, and answered. The prices are zCDP ρ.</p>"
        if paid
        else "<p>The answers have no noise, so their price is infinite.</p>"
    )
    figure = ""
    if paid:
        parts = facts.bill(questions)
        words = f"The price fixed and charged beforehand is ρ = {number(price.rho)}. Numbers refer to the table. "
        if len(parts) < len(questions):
            pays = facts.unit_in_words(model.plan_.rows_per_person).pays
            words += f"The table was split into disjoint batches; {pays}, so the bar shows the dearest. "
        if {part.kind for part in parts} == {"select", "measure"}:
            words += (
                'Questions in <span class="key select">this colour</span> choose places, those in '
                '<span class="key measure">this one</span> measure values.'
            )
        figure = f"<figure>\n{price_bar(parts)}\n<figcaption>{words}</figcaption>\n</figure>"
    rows = [
        (
            f'<span class="key {q.kind}">{q.place}</span>',
            text(q.release.question),
            text(q.release.mechanism.replace("-", "\N{NON-BREAKING HYPHEN}")) if paid else "exact",
            number(q.release.price.rho),
            percent(q.share) if paid else "–",
            number(q.release.scale),
            f"{q.release.n_rows:,}" + ("" if q.release.batch is None else f" (batch {q.release.batch + 1})"),
        )
        for q in questions
    ]
    head = ("No.", "question", "mechanism", "price ρ", "share", "noise scale", "rows")
    caption = "What was asked, in order. The noise scale is in the unit of the answer, a mean over the rows."
    made = table(caption, head, rows, (3, 4, 5, 6))
    if len(rows) > FOLDED:
        made = f"<details>\n<summary>All {len(rows):,} questions as a table</summary>\n{made}\n</details>"
    return section("What was asked of the data", lead, figure, made)


def predicted(model: Any, summary: FitSummary) -> str:
    """What to expect, from before the data were read; and what the paid fit check found."""
    p = summary.predicted
    heading = "What the plan predicted"
    check = getattr(model, "fit_check_", None)
    after = "" if check is None else f"<p>After the fit, the fit check says: {text(check.verdict)}.</p>"
    if p is None:
        return section(heading, f"<p>Nothing: {text(summary.no_prediction)}.</p>", after)
    advice = f" Not useful: {text(summary.advice)}." if not summary.useful else ""
    fails = f" About {100 * p.failure:.0f} of 100 such fits find no structure at all." if p.failure >= 0.005 else ""
    rest = " ".join(text(words) for words in (p.meaning, p.assumed) if words)
    return section(
        heading,
        f"<p>{text(p.quantity[:1].upper() + p.quantity[1:])}: <strong>{number(p.middle)}</strong>, and between "
        f"{number(p.low)} and {number(p.high)} in {p.cases}; computed {p.when}.{fails}{advice}</p>",
        f"<p>{rest} If what is assumed is wrong, so is the prediction, and the guarantee still holds.</p>",
        after,
    )


def chosen(model: Any, summary: FitSummary) -> str:
    """Every setting, and where it came from."""
    rows = [(text(setting.name), _value(setting.value), text(setting.origin)) for setting in summary.settings]
    made = table("Settings of the fit.", ("setting", "value", "origin"), rows)
    return section(
        "Settings and where they came from",
        "<p>A setting was chosen by looking at the data only where the table says so.</p>",
        made,
        f"<details>\n<summary>The plan as printed</summary>\n<pre>{_lines(str(model.plan_))}</pre>\n</details>",
    )


def limits(model: Any, scaler: Any | None) -> str:
    """What the guarantee does not cover."""
    guarantee = facts.promised(model, scaler)
    unit, several = text(guarantee.unit), "more" if model.plan_.rows_per_person > 1 else "several"
    points = [
        f"<strong>A person with {several} rows.</strong> The unit is {unit}; whoever has more is protected less.",
        "<strong>What happened before the fit.</strong> Filtering the rows, or choosing bounds and arguments by "
        "looking at the data, is not covered, nor is a start or σ taken from them without paying.",
        "<strong>Other releases about the same rows.</strong> Other fits, tables and plots add to what is given away. "
        "This page states one model only.",
        "<strong>Predictions about rows of the table.</strong> Applying the model to them gives answers about them.",
        "<strong>Public facts.</strong> The numbers of rows and columns, the column names and all arguments are taken "
        "to be public.",
        "<strong>What holds for everybody.</strong> What the model says about all, it says about those in the table.",
        "<strong>Side channels.</strong> How long the fit took, memory, swap; and whoever controls the machine.",
    ]
    if not guarantee.private:
        points.insert(0, "<strong>Anything, here: this fit is not private.</strong>")
    return section("What the guarantee does not cover", "<ul>" + "".join(f"<li>{p}</li>" for p in points) + "</ul>")


def citation(model: Any, digest: str | None) -> str:
    """How to cite, and what exactly was fitted."""
    version = text(model.guarantee_.version)
    which = (
        ""
        if digest is None
        else f"<p>This fit: {text(type(model).__name__)}, dpem {version}, fingerprint <code>{text(digest)}</code>. The "
        "fingerprint is the SHA-256 of everything the model publishes; a <code>model.json</code> of the same fit has "
        "the same one. It is not a signature.</p>"
    )
    return section(
        "How to cite",
        f"<p>The software: <cite>dpem {version}: latent-variable models fitted by EM under differential "
        f"privacy</cite>. It grew from: {_PAPER}</p>",
        which,
    )


def _value(value: str | float | int) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return number(value, 4) if isinstance(value, float) else text(value)


def _lines(value: str) -> str:
    """Escaped text that keeps its line breaks."""
    return "\n".join(text(line) for line in value.splitlines())
