"""Which objects are taken for gradient scalers, and what is known of them from where they are made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tclint.config.settings import Settings
from tclint.core.finding import Finding
from tclint.engine.sources.lint import lint
from tclint.engine.sources.program import lint_text
from tclint.source.source_rule import SourceRule
from tclint_rules.scaling.bf16_scaler import ScalerWithBf16
from tclint_rules.scaling.clip_before_unscale import ClipBeforeUnscale
from tclint_rules.scaling.loss_scaling import Fp16AutocastNoScaler
from tclint_rules.scaling.unscale_misuse import UnscaleMisuse

BF16 = """\
for batch in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(batch)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
UNSCALED_TWICE = """\
for batch in loader:
    {name}.scale(model(batch)).backward()
    {name}.unscale_(optimizer)
    {name}.unscale_(optimizer)
    {name}.step(optimizer)
    {name}.update()
"""


def findings(rule: type[SourceRule], *parts: str) -> list[Finding]:
    return lint_text("\n".join(("import torch", *parts)), [rule()], Settings())


@pytest.mark.parametrize(
    ("arguments", "enabled"),
    [
        ("", "always"),
        ('"cuda"', "always"),
        ('"cuda", 65536.0, 2.0, 0.5, 2000, True', "always"),
        ('"cuda", enabled=1', "always"),
        ('"cuda", enabled=args.amp', "decided at run time"),
        ('"cuda", 65536.0, 2.0, 0.5, 2000, args.amp', "decided at run time"),
        ('"cuda", 1.0, 2.0, 0.5, 2000, True, "one argument too many"', "always"),
    ],
)
def test_whether_a_scaler_is_on_is_said(arguments: str, enabled: str) -> None:
    [finding] = findings(ScalerWithBf16, f"scaler = torch.amp.GradScaler({arguments})", BF16)
    assert (finding.code, finding.evidence["enabled"]) == ("AMP008", enabled)


@pytest.mark.parametrize("arguments", ['"cuda", **options', "*options"])
def test_options_that_may_switch_a_scaler_off_are_no_finding(arguments: str) -> None:
    assert findings(ScalerWithBf16, f"scaler = torch.amp.GradScaler({arguments})", BF16) == []


@pytest.mark.parametrize(
    "arguments", ['"cuda", enabled=False', '"cuda", 65536.0, 2.0, 0.5, 2000, False', '"cuda", enabled=0']
)
def test_a_scaler_that_is_off_costs_nothing(arguments: str) -> None:
    assert findings(ScalerWithBf16, f"scaler = torch.amp.GradScaler({arguments})", BF16) == []


@pytest.mark.parametrize(
    "made",
    [
        "def make():\n    return torch.amp.GradScaler('cuda')\nscaler = make()",
        "def make():\n"
        "    if args.sharded:\n"
        "        return strategy.make()\n"
        "    return torch.amp.GradScaler('cuda')\n"
        "scaler = make()",
        "def given():\n"
        "    return strategy.scaler\n"
        "scaler = torch.amp.GradScaler('cuda') if args.own else given()",
        "own = torch.amp.GradScaler('cuda')\n"
        "other = strategy.make()\n"
        "scaler = other if args.sharded else own",
        "own = torch.amp.GradScaler('cuda')\nscaler = own",
    ],
)
def test_the_scaler_that_is_seen_is_judged_beside_one_that_is_not(made: str) -> None:
    assert len(findings(ScalerWithBf16, made, BF16)) == 1


def test_a_scaler_from_elsewhere_is_not_judged() -> None:
    assert findings(ScalerWithBf16, "scaler = strategy.make()", BF16) == []


@pytest.mark.parametrize(
    ("header", "call"),
    [
        ("def epoch(loader, scaler):", "epoch(loader, torch.amp.GradScaler('cuda'))"),
        ("def epoch(loader, scaler):", "epoch(scaler=torch.amp.GradScaler('cuda'), loader=loader)"),
        ("def epoch(loader, scaler, *rest):", "epoch(loader, torch.amp.GradScaler('cuda'), 1, 2)"),
        (
            "class Trainer:\n  def epoch(self, loader, scaler):",
            "  def run(self):\n    self.epoch(loader, torch.amp.GradScaler('cuda'))",
        ),
    ],
)
def test_a_scaler_is_followed_into_the_function_that_gets_it(header: str, call: str) -> None:
    body = "\n".join(f"    {line}" for line in BF16.splitlines())
    assert [finding.code for finding in findings(ScalerWithBf16, header, body, call)] == ["AMP008"]


@pytest.mark.parametrize(
    ("made", "name", "is_scaler"),
    [
        ("scaler = torch.amp.GradScaler('cuda')", "scaler", True),
        ("amp = torch.amp.GradScaler('cuda')", "amp", True),
        ("from engine import get_scaler\nscaler = get_scaler()", "scaler", True),
        ("from engine import ShardedGradScaler\nscaler = ShardedGradScaler()", "scaler", True),
        ("model, scaler = build(config)", "scaler", True),
        ("from engine import manager", "manager", False),
        # What is done with it says what it is.
        ("from engine import build\nscaler = build(config)", "scaler", True),
        ("def make_scaler():\n    return Rescaler()\nscaler = make_scaler()", "scaler", True),
        ("from engine import scaler\nscaler(loss, optimizer)", "scaler", False),
    ],
)
def test_what_is_taken_for_a_scaler(made: str, name: str, is_scaler: bool) -> None:
    assert len(findings(UnscaleMisuse, made, UNSCALED_TWICE.format(name=name))) == is_scaler


def test_a_scaler_that_only_unscales_is_one() -> None:
    clip = "def clip(scaler, optimizer):\n    scaler.unscale_(optimizer)\n    scaler.unscale_(optimizer)\n"
    assert [finding.location.line for finding in findings(UnscaleMisuse, clip)] == [4]


@pytest.mark.parametrize(
    ("enabled", "found"), [("False", 0), ("True", 1), ("args.amp", 1), ("use_amp", 1), ("may_use_amp", 1)]
)
def test_misuse_counts_unless_the_scaler_is_off_for_certain(enabled: str, found: int) -> None:
    settings = (
        "use_amp = may_use_amp = False\n"
        "if args.half:\n"
        "    use_amp = True\n"
        "    may_use_amp = args.amp\n"
        f"scaler = torch.amp.GradScaler('cuda', enabled={enabled})"
    )
    assert len(findings(UnscaleMisuse, settings, UNSCALED_TWICE.format(name="scaler"))) == found


UNSCALED = """\
def train(model, loader, optimizer{parameter}):
    for batch in loader:
        with torch.autocast("cuda"):
            loss = model(batch)
        loss.backward()
        optimizer.step()
"""
SCALED = """\
def pretrain(model, batch, optimizer):
    scaler = torch.amp.GradScaler("cuda")
    scaler.scale(model(batch)).backward()
    scaler.step(optimizer)
    scaler.update()
"""


@pytest.mark.parametrize(
    ("before", "parameter", "found"),
    [
        ("", "", 1),
        ("", ", scaler=None", 1),
        ("from torch.amp import GradScaler", "", 1),
        (SCALED, "", 1),
        # What else the file says of scaling is not about this loss.
        ("engine.loss_scale = 128.0", "", 1),
        (f"{SCALED}    engine.keep(scaler)", ", scaler=None", 1),
    ],
)
def test_an_unscaled_loss_is_reported_whatever_else_is_scaled(
    before: str, parameter: str, found: int
) -> None:
    assert len(findings(Fp16AutocastNoScaler, before, UNSCALED.format(parameter=parameter))) == found


UNSCALE = "scaler.unscale_(optimizer)"
HELPERS = f"""\
def clip():
    {UNSCALE}
def log():
    {UNSCALE}
def may_clip():
    if args.clip:
        {UNSCALE}
def may_log():
    if args.log:
        {UNSCALE}
"""


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        (f"with watch:\n        {UNSCALE}", f"with torch.no_grad():\n        {UNSCALE}", 1),
        (f"try:\n        {UNSCALE}\n    finally:\n        pass", f"with watch:\n        {UNSCALE}", 1),
        (f"with watch:\n        with torch.no_grad():\n            {UNSCALE}", UNSCALE, 1),
        (f"if args.clip:\n        {UNSCALE}", UNSCALE, 1),
        (f"if args.clip:\n        {UNSCALE}", f"if args.log:\n        {UNSCALE}", 0),
        (f"if args.clip:\n        with watch:\n            {UNSCALE}", f"if args.log:\n        {UNSCALE}", 0),
        ("clip()", "log()", 1),
        ("clip()", UNSCALE, 1),
        ("may_clip()", "may_log()", 0),
        (f"if args.clip:\n        {UNSCALE}\n        continue", UNSCALE, 0),
        (f"if args.clip:\n        {UNSCALE}\n        return", UNSCALE, 0),
        (f"for hook in hooks:\n        if hook.last:\n            {UNSCALE}\n            break", UNSCALE, 1),
        (f"if args.clip:\n        {UNSCALE}\n        yield batch", UNSCALE, 1),
    ],
)
def test_unscaling_twice_is_reported_where_one_run_does_both(first: str, second: str, found: int) -> None:
    loop = (
        "def train(model, loader):\n"
        "  for batch in loader:\n"
        "    scaler.scale(model(batch)).backward()\n"
        f"    {first}\n"
        f"    {second}\n"
        "    scaler.step(optimizer)\n"
        "    scaler.update()\n"
    )
    made = "scaler = torch.amp.GradScaler('cuda')\n" + HELPERS
    assert len(findings(UnscaleMisuse, made, loop)) == found


def test_unscaling_twice_in_a_function_without_a_loop_is_reported() -> None:
    program = (
        "def step(loss, optimizer, scaler):\n"
        "    scaler.scale(loss).backward()\n"
        f"    with watch:\n        {UNSCALE}\n"
        f"    with torch.no_grad():\n        {UNSCALE}\n"
        "    scaler.step(optimizer)\n"
        "    scaler.update()\n"
    )
    assert [finding.location.line for finding in findings(UnscaleMisuse, program)] == [7]


def test_a_loss_that_a_function_scales_is_scaled() -> None:
    program = (
        "def scaled(loss, scaler):\n"
        "    return scaler.scale(loss)\n"
        "def train(batch, optimizer, scaler):\n"
        "    scaled(first_loss(batch), scaler).backward()\n"
        "    scaler.unscale_(optimizer)\n"
        "    scaled(second_loss(batch), scaler).backward()\n"
        "    scaler.step(optimizer)\n"
        "    scaler.update()\n"
    )
    [finding] = findings(UnscaleMisuse, program)
    assert "before the last backward pass" in finding.message


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)", 1),
        ("[p.grad.clamp_(-1, 1) for p in model.parameters()]", 1),
        ("[p.grad.norm() for p in model.parameters()]", 0),
        ("scaler.unscale_(optimizer)\n    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)", 0),
        ("rows.clamp_(0, 1)", 0),
    ],
)
def test_clipping_is_followed_into_another_file(tmp_path: Path, body: str, found: int) -> None:
    (tmp_path / "helpers.py").write_text(f"import torch\n\ndef clip_gradients(model):\n    {body}\n")
    train = tmp_path / "train.py"
    train.write_text(
        "import torch\n"
        "from helpers import clip_gradients\n\n"
        "scaler = torch.amp.GradScaler('cuda')\n"
        "for batch in loader:\n"
        "    scaler.scale(model(batch)).backward()\n"
        "    clip_gradients(model)\n"
        "    scaler.step(optimizer)\n"
        "    scaler.update()\n"
    )
    assert len(lint([str(train)], [ClipBeforeUnscale()], Settings()).findings) == found


SCALED_STEP = "scaler.scale(loss).backward()\n{indent}scaler.step(optimizer)\n{indent}scaler.update()"
PLAIN_STEP = "loss.backward()\n{indent}optimizer.step()"


@pytest.mark.parametrize(
    ("enabled", "test", "scaled", "plain", "found"),
    [
        ("True", "args.fp16", SCALED_STEP, PLAIN_STEP, 1),
        ("True", "device.type == 'cuda'", SCALED_STEP, PLAIN_STEP, 0),
        # What is float16 in both branches needs the scaler in both.
        ("True", "args.adversarial", SCALED_STEP, PLAIN_STEP, 1),
        ("args.amp", "args.adversarial", SCALED_STEP, PLAIN_STEP, 0),
        ("True", "args.adversarial", SCALED_STEP, "loss.backward()", 0),
        ("True", "args.adversarial", "engine.keep(scaler)", PLAIN_STEP, 1),
        ("True", "args.adversarial", "engine.backward(loss)", PLAIN_STEP, 0),
        ("True", "torch.cuda.is_available()", SCALED_STEP, PLAIN_STEP, 0),
    ],
)
def test_the_branch_without_a_scaler_is_reported_only_if_it_is_float16_too(
    enabled: str, test: str, scaled: str, plain: str, found: int
) -> None:
    loop = (
        "scaler = torch.amp.GradScaler('cuda')\n"
        "for batch in loader:\n"
        f"    with torch.autocast('cuda', enabled={enabled}):\n"
        "        loss = model(batch)\n"
        f"    if {test}:\n"
        f"        {scaled.format(indent=' ' * 8)}\n"
        "    else:\n"
        f"        {plain.format(indent=' ' * 8)}\n"
    )
    assert len(findings(Fp16AutocastNoScaler, loop)) == found


def test_a_plain_step_beside_a_scaled_one_is_reported() -> None:
    loop = (
        "scaler = torch.amp.GradScaler('cuda')\n"
        "for batch in loader:\n"
        "    with torch.autocast('cuda'):\n"
        "        loss, critic = model(batch)\n"
        f"    {SCALED_STEP.format(indent=' ' * 4)}\n"
        "    critic.backward()\n"
        "    optimizer_of_critic.step()\n"
    )
    assert [finding.evidence["loss"] for finding in findings(Fp16AutocastNoScaler, loop)] == ["critic"]


@pytest.mark.parametrize(
    ("inner", "found"), [("", 1), ("    scaler = torch.amp.GradScaler(enabled=False)", 0)]
)
def test_a_function_that_makes_its_own_scaler_uses_that_one(inner: str, found: int) -> None:
    body = "\n".join(f"    {line}" for line in UNSCALED_TWICE.format(name="scaler").splitlines())
    parameter = "" if inner else ", scaler"
    program = (
        f"def epoch(loader, optimizer{parameter}):\n{inner}\n{body}\n"
        "def train(loader, optimizer):\n"
        "    scaler = torch.amp.GradScaler('cuda')\n"
        f"    epoch(loader, optimizer{parameter})\n"
    )
    assert len(findings(UnscaleMisuse, program)) == found


@pytest.mark.parametrize(
    ("second", "is_scaled"),
    [
        ("scaler.scale(second).backward()", True),
        ("torch.autograd.backward(scaler.scale(second))", True),
        ("loss = scaler.scale(second)\n    loss.backward()", True),
        ("loss = scaler.scale(second)\n    loss += penalty\n    loss.backward()", True),
        ("loss = second\n    loss += scaler.scale(penalty)\n    loss.backward()", True),
        ("loss = scaler.scale(second)\n    loss = second\n    loss.backward()", False),
        ("loss = second\n    if args.amp:\n        loss = scaler.scale(second)\n    loss.backward()", True),
        ("scaler.scale(second).sum().backward()", True),
        ("sum([scaler.scale(second), penalty]).backward()", True),
        ("torch.stack([scaler.scale(second), penalty]).mean().backward()", True),
        ("weigh(scaler.scale(second)).backward()", False),
        ("run_backward(scaler.scale(second))", True),
        ("run_backward(loss=scaler.scale(second))", True),
        ("run_backward(scaler.scale(second), 1, 2)", True),
        ("run_backward(second, scaler.scale(second))", False),
        ("second.backward()", False),
    ],
)
def test_which_backward_passes_are_scaled(second: str, is_scaled: bool) -> None:
    program = (
        "def run_backward(loss, *rest):\n"
        "    loss.backward()\n"
        "def step(first, second, penalty, optimizer, scaler):\n"
        "    scaler.scale(first).backward()\n"
        "    scaler.unscale_(optimizer)\n"
        f"    {second}\n"
        "    scaler.step(optimizer)\n"
        "    scaler.update()\n"
    )
    assert len(findings(UnscaleMisuse, program)) == is_scaled


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        ("p.grad.clamp_(-1, 1)", 1),
        ("p.grad.data.clamp_(-1, 1)", 1),
        ("p.grad = p.grad.clamp(-1, 1)", 1),
        ("p.grad = p.grad.to(torch.float32)", 0),
        ("p.grad.add_(torch.randn_like(p))", 1),
        ("p.grad.add_(other.grad)", 0),
        ("p.grad.copy_(torch.randn_like(p))", 0),
        ("p.grad += args.weight_decay * p.data", 1),
        ("p.grad += other.grad", 0),
        ("p.grad *= 0.5", 0),
        ("p.grad = p.grad / 2", 0),
        # What divides gradients by hand may be what unscales them.
        ("p.grad /= scale\n        p.grad.clamp_(-1, 1)", 0),
        ("p.grad.div_(scale)\n        p.grad.clamp_(-1, 1)", 0),
        ("p.grad = p.grad / scale\n        p.grad.clamp_(-1, 1)", 0),
        ("p.grad = p.grad.float()\n        p.grad.clamp_(-1, 1)", 1),
        ("p.grad = p.grad + offset\n        p.grad.clamp_(-1, 1)", 1),
        ("p.grad = 2 * gradient\n        p.grad.clamp_(-1, 1)", 1),
    ],
)
def test_which_changes_of_gradients_depend_on_their_scale(edit: str, found: int) -> None:
    loop = (
        "scaler = torch.amp.GradScaler('cuda')\n"
        "for batch in loader:\n"
        "    scaler.scale(model(batch)).backward()\n"
        "    for p in model.parameters():\n"
        f"        {edit}\n"
        "    scaler.step(optimizer)\n"
        "    scaler.update()\n"
    )
    assert len(findings(ClipBeforeUnscale, loop)) == found
