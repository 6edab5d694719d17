"""The sections of a report: plain sentences around released numbers."""

from __future__ import annotations

import math

from dpem.estimators import DPStandardScaler
from dpem.paper.estimators.base import PrivateEM
from dpem.paper.tight import Select
from dpem.privacy import together
from dpem.report import facts
from dpem.report.charts import coefficient_chart, price_bar
from dpem.report.markup import number, percent, section, table, text

#: Coefficients drawn; the table has all of them.
DRAWN = 40
#: Rows above which a table is folded away or cut.
FOLDED = 12

_PAPER = (
    "Zhe Zhang and Linjun Zhang, <cite>High-Dimensional Differentially-Private EM Algorithm: Methods and Near-Optimal "
    "Statistical Guarantees</cite>, Department of Statistics, Rutgers University."
)


def banner(model: PrivateEM) -> str:
    """What nobody may overlook, if the fit is not private."""
    if model.guarantee_.private:
        return ""
    if math.isinf(model.guarantee_.epsilon):
        reason = "No noise was added (ε = ∞): this is the non-private reference fit, and it protects nobody."
    else:
        reason = (
            "The noise came from a seed (random_state): whoever knows the seed can subtract it. This page shows a "
            "simulation, and what it would promise with private noise."
        )
    return f'<p class="banner" role="alert">NOT PRIVATE. {reason}</p>'


def verdict(model: PrivateEM) -> str:
    """The page in one sentence, and its key figures."""
    plan, guarantee = model.plan_, model.guarantee_
    kept = len(model.support_)
    what = f"{kept:,} of {plan.d:,} coefficients" if kept < plan.d else f"all {plan.d:,} coefficients"
    sentence = f"A {facts.MODELS[plan.model]} was fitted to {plan.n:,} rows and {what} were released"
    if guarantee.private:
        promise = f"ε = {number(guarantee.epsilon)}, δ = {number(guarantee.delta)}"
        sentence += f"; any {text(guarantee.unit)} stays hidden within {promise}"
    else:
        sentence += ", <strong>without privacy</strong>"
    if plan.predicted_error is not None:
        part = percent(plan.predicted_error / plan.signal)
        sentence += f"; the predicted error is {part} of the assumed length of β"
        if not plan.feasible:
            sentence += ", <strong>so expect little more than noise</strong>"
    figures = [
        ("ε", number(plan.epsilon)),
        ("δ", number(plan.delta)),
        ("rows", f"{plan.n:,}"),
        ("coefficients", f"{kept:,} of {plan.d:,}"),
        ("questions", f"{len(model.releases_):,}"),
    ]
    if plan.predicted_error is not None:
        figures.append(("predicted error", number(plan.predicted_error)))
    tiles = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in figures)
    return f'<p class="verdict">{sentence}.</p>\n<dl class="figures">{tiles}</dl>'


def promise(model: PrivateEM) -> str:
    """The guarantee, in words and in symbols."""
    guarantee = model.guarantee_
    if math.isinf(guarantee.epsilon):
        return section("The guarantee", f"<blockquote>{text(guarantee)}</blockquote>")
    epsilon, delta = number(guarantee.epsilon, 4), number(guarantee.delta, 4)
    unit = facts.unit_in_words(model)
    guess = facts.best_guess(guarantee.epsilon, guarantee.delta)
    return section(
        "The guarantee",
        "<h3>In plain words</h3>",
        f"<p>Take {unit.taken} and put {unit.others} place. What this page shows, and "
        f"everything else the fit published, would have come out almost as likely as it did: nothing becomes more than "
        f"{number(math.exp(guarantee.epsilon), 4)} times as likely (e<sup>ε</sup>), and {delta} on top of that. "
        f"Someone who knows every other row, and has two candidates for {unit.these}, equally "
        f"likely before, guesses right in at most {100 * guess:.1f} of 100 cases; a coin does in 50.</p>",
        "<h3>In symbols</h3>",
        '<p class="formula">P(<i>M</i>(<i>D</i>) ∈ <i>S</i>) ≤ e<sup>ε</sup> · P(<i>M</i>(<i>D</i>′) ∈ <i>S</i>) + δ'
        f"<br>ε = {epsilon}, δ = {delta}</p>",
        f"<p>for all tables <i>D</i> and <i>D</i>′ of the same length that differ in {unit.differs} "
        f"({text(guarantee.neighbours)} neighbours) and all sets <i>S</i> of outcomes of the fit <i>M</i>.</p>",
        f"<h3>The statement to publish</h3>\n<blockquote>{text(guarantee)}</blockquote>",
    )


def scaled(model: PrivateEM, scaler: DPStandardScaler | None) -> str:
    """What was released before the fit, to scale its columns: it has a price of its own."""
    heading = "The columns were scaled first"
    if scaler is None:
        if model.scaler_ is None:
            return ""
        return section(
            heading,
            "<p>The centre and spread of every column were released before, by the scaler with the fingerprint "
            f"<code>{text(model.scaler_)}</code>. That has a price of its own, which the guarantee above does not "
            "count. Coefficients are in the scaled units, and new rows must be scaled with the same numbers.</p>",
        )
    both = together([scaler.guarantee_, model.guarantee_])
    whole = f"ε = {math.ceil(1e4 * both.epsilon) / 1e4:g} and δ = {number(both.delta, 4)} for {text(both.unit)}"
    apart = f"ε = {number(scaler.guarantee_.epsilon, 4)}, δ = {number(scaler.guarantee_.delta, 4)}"
    return section(
        heading,
        f"<p>The centre and spread of every column were released before, at {apart}, which the guarantee above does "
        f"not count. If both were fitted to the same rows, they are together (ε, δ)-differentially private with "
        f"{whole}. Coefficients are in the scaled units, and new rows must be scaled with the same numbers.</p>",
    )


def asked(model: PrivateEM) -> str:
    """What was asked of the data and what each answer cost."""
    questions = facts.questions(model)
    price = model.guarantee_.price
    paid = math.isfinite(price.rho)
    lead = (
        "<p>The fit saw no row. It put these questions to a curator, which debited the price of each, summed over the "
        "rows with every row’s influence clipped, added noise, and answered. The prices are zCDP ρ.</p>"
        if paid
        else "<p>The answers have no noise, so their price is infinite.</p>"
    )
    figure = ""
    if paid:
        parts = facts.bill(questions)
        epsilon = price.epsilon(model.guarantee_.delta)
        words = (
            f"The price fixed and charged beforehand is ρ = {number(price.rho)}, which is ε = {number(epsilon)} at "
            f"δ = {number(model.guarantee_.delta)}; the guarantee states ε = {number(model.guarantee_.epsilon)}. "
            f"Numbers refer to the table. "
        )
        if len(parts) < len(questions):
            pays = facts.unit_in_words(model).pays
            words += f"The table was split into disjoint batches; {pays}, so the bar shows the dearest. "
        if {part.kind for part in parts} == {"select", "measure"}:
            words += 'Two shades: <span class="key measure">values</span> <span class="key select">places only</span>.'
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


def coefficients(model: PrivateEM) -> str:
    """The coefficients, their known noise level, and the detection threshold."""
    order = facts.largest_first(model)
    noise, threshold = facts.coefficient_noise(model), model.plan_.detectable
    if not len(order):
        return section("Coefficients", "<p>No coefficient was larger than what noise alone explains.</p>")
    if threshold is not None and math.isinf(threshold):
        threshold = None
    drawn = order[:DRAWN]
    labels, values = [facts.column_name(model, j) for j in drawn], [float(model.coef_[j]) for j in drawn]
    if noise is None:
        words = "No noise was added, so there are no error bars. "
    else:
        words = (
            f"A bar reaches two standard deviations of the privacy noise of the last step to either side (one is "
            f"{number(noise)}); about 19 of 20 draws of that noise fall within. It is the same for every coefficient, "
            f"and known because the noise is. Sampling error is not in the bars: it would have to be asked and paid "
            f"for. "
        )
        if model.plan_.predicted_error is not None:
            words += "The predicted error below has both. "
    if threshold is not None:
        selects = any(isinstance(step, Select) for step in model.plan_.steps)
        meaning = "a coefficient of that size is selected as often as not" if selects else "what that noise may explain"
        words += f"Dashed lines, as planned: {meaning}. "
    if len(order) > DRAWN:
        words += f"The {DRAWN} largest of {len(order):,} are drawn. "
    if model.plan_.sparsity is not None:
        words += "Coefficients not listed are zero in the model; that does not show that they are zero in truth."
    chart = coefficient_chart(labels, values, noise, threshold)
    shown = "none" if noise is None else number(noise)
    rows = [(text(facts.column_name(model, j)), number(float(model.coef_[j]), 5), shown) for j in order]
    caption = "Every coefficient on the support, largest first."
    return section(
        "Coefficients",
        f"<figure>\n{chart}\n<figcaption>{words}</figcaption>\n</figure>",
        "<details>\n<summary>All coefficients as a table</summary>\n"
        + table(caption, ("column", "coefficient", "standard deviation of the noise"), rows, (1, 2))
        + "\n</details>",
    )


def components(model: PrivateEM) -> str:
    """The two components of a mixture; nothing for the other model."""
    if model._model_name == "missing-regression":
        return ""
    clouds = model._model_name == "symmetric-mixture"
    lead = (
        "<p>Half of the rows are taken to scatter around +β, half around −β. Which of the two is called component 1 is "
        "arbitrary. Outside the columns listed both centres are zero.</p>"
        if clouds
        else "<p>Half of the rows are taken to follow the response +⟨x, β⟩, half −⟨x, β⟩. Which of the two is called "
        "component 1 is arbitrary. Columns not listed have coefficient zero in both.</p>"
    )
    what = "centre" if clouds else "coefficient"
    order = facts.largest_first(model)
    rows = [
        (text(facts.column_name(model, j)), number(float(model.coef_[j]), 5), number(-float(model.coef_[j]), 5))
        for j in order[:FOLDED]
    ]
    caption = f"The two {what}s on the support."
    if len(order) > FOLDED:
        caption += f" The {FOLDED} largest of {len(order):,}; the table of coefficients has all of component 1."
    head = ("column", f"{what}, component 1 (+β)", f"{what}, component 0 (−β)")
    return section("The two components", lead, table(caption, head, rows, (1, 2)))


def predicted(model: PrivateEM) -> str:
    """What error to expect, from before the data were read."""
    plan = model.plan_
    if plan.predicted_error is None or plan.interval is None:
        return section("Predicted error", f"<p>None: the method “{text(plan.method)}” makes no prediction.</p>")
    low, high = plan.interval
    known = facts.planned(model) == facts.PLANNED
    when = "before the data were read" if known else "from public numbers and the released σ"
    advice = f" Not useful: {text(plan.advice)}." if not plan.feasible else ""
    return section(
        "Predicted error",
        f"<p>The distance ‖β̂ − β‖ between the released and the true coefficients was predicted to be "
        f"<strong>{number(plan.predicted_error)}</strong> on average, and between {number(low)} and {number(high)} in "
        f"8 of 10 cases; β is assumed to have length {number(plan.signal)}.{advice}</p>",
        f"<p>It counts privacy noise and sampling error. It was computed {when}, by rehearsing the fit on invented "
        "rows that follow the model and the assumptions in the settings below. If those are wrong, so is it, "
        "and the guarantee still holds.</p>",
    )


def chosen(model: PrivateEM) -> str:
    """Every setting, and where it came from."""
    rows = [(text(setting.name), _value(setting.value), text(setting.origin)) for setting in facts.settings(model)]
    return section(
        "Settings and where they came from",
        "<p>A setting was chosen by looking at the data only where the table says so.</p>",
        table("Settings of the fit.", ("setting", "value", "origin"), rows),
        f"<details>\n<summary>The plan as printed</summary>\n<pre>{text_lines(str(model.plan_))}</pre>\n</details>",
    )


def limits(model: PrivateEM) -> str:
    """What the guarantee does not cover."""
    unit, several = text(model.guarantee_.unit), "more" if model.plan_.rows_per_person > 1 else "several"
    points = [
        f"<strong>A person with {several} rows.</strong> The unit is {unit}; whoever has more is protected less.",
        "<strong>What happened before the fit.</strong> Scaling, filtering, or choosing arguments by looking at the "
        "data is not covered, nor is a start or σ taken from them without paying.",
        "<strong>Other releases about the same rows.</strong> Other fits, tables and plots add to what is given away. "
        "This page states one fit only.",
        "<strong>Predictions about rows of the table.</strong> Applying the model to them gives answers about them.",
        "<strong>Public facts.</strong> The numbers of rows and columns, the column names and all arguments are taken "
        "to be public.",
        "<strong>What holds for everybody.</strong> What the model says about all, it says about those in the table.",
        "<strong>Side channels.</strong> How long the fit took, memory, swap; and whoever controls the machine.",
    ]
    if not model.guarantee_.private:
        points.insert(0, "<strong>Anything, here: this fit is not private.</strong>")
    return section("What the guarantee does not cover", "<ul>" + "".join(f"<li>{p}</li>" for p in points) + "</ul>")


def citation(model: PrivateEM, digest: str) -> str:
    """How to cite, and what exactly was fitted."""
    version = text(model.guarantee_.version)
    return section(
        "How to cite",
        f"<p>The software: <cite>dpem {version}: latent-variable models fitted by EM under differential "
        f"privacy</cite>. The method is based on: {_PAPER}</p>",
        f"<p>This fit: {text(type(model).__name__)}, dpem {version}, fingerprint <code>{text(digest)}</code>. The "
        "fingerprint is the SHA-256 of everything the model publishes; a <code>model.json</code> of the same fit has "
        "the same one. It is not a signature.</p>",
    )


def _value(value: str | float | int) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return number(value, 4) if isinstance(value, float) else text(value)


def text_lines(value: str) -> str:
    """Escaped text that keeps its line breaks."""
    return "\n".join(text(line) for line in value.splitlines())
