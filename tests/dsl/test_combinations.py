"""What may be combined: for each rule what it refuses, and what stands next to it and is fine."""

from typing import Any

import pytest

from mnemic.dsl import combinations
from mnemic.dsl.load import load
from mnemic.dsl.rules.rule import Rule
from mnemic.dsl.spec import Spec
from mnemic.errors import InvalidSpec

RULES = {
    f"{rule.__module__.rpartition('.')[2]}.{rule.__name__}": rule for rule in combinations.RULES
}
KERNEL = {"kernel": "exp(s)"}
INPUT = {"from": "input"}
CHANNEL = {"from": "input", "per": "key"}
SIMPLEX = {"kind": "simplex"}
ATTENTION = {"memory": "nonparametric", "weights": "similarity"}
BATCH = {"method": "batch", "inner_steps": 2, "from": "origin"}
EXACT = {"bias": "l2", "optimizer": "exact", "retention": {"global": {"l2": 0.5}}}
ANCHOR = {"anchor": {"chunk": 16}}

Case = tuple[str, dict[str, Any], str, dict[str, Any]]

TURNED = {"phase": {"from": "input", "per": "key"}}
CASES: list[Case] = [
    (
        "optimizers.origin_of_batch_steps",
        {"bias": "l2", "window": "all", "optimizer": {"method": "batch", "inner_steps": 2}},
        "optimizer.from",
        {"bias": "l2", "window": "all", "optimizer": BATCH},
    ),
    (
        "optimizers.momentum_of_its_method",
        {"optimizer": {"method": "momentum"}},
        "optimizer",
        {"optimizer": {"method": "momentum", "momentum": 0.9}},
    ),
    (
        "expressions.readable",
        {"features": {"expr": "k"}},
        "features.expr",
        {"features": {"expr": "x*x"}},
    ),
    (
        "expressions.readable",
        {"bias": {"expr": "__import__"}},
        "bias.expr",
        {"bias": {"expr": "log(cosh(e))"}},
    ),
    (
        "expressions.readable",
        {"features": {"kernel": "s", "readout": {"kernel": "k"}}},
        "features.readout.kernel",
        {"features": {"kernel": "s", "readout": {"kernel": "round(s)"}}},
    ),
    (
        "expressions.readable",
        {"retention": {"local": {"f-divergence": "chi"}}},
        "retention.local.f-divergence",
        {"retention": {"local": {"f-divergence": "(x - 1)**4"}}},
    ),
    (
        "expressions.readable",
        {"retention": {"local": {"bregman": "log(x)"}}},
        "retention.local.bregman",
        {"retention": {"local": {"bregman": "-log(w)"}}},
    ),
    (
        "expressions.readable",
        {"memory": {"kind": "mlp", "activation": "gelo"}},
        "memory.activation",
        {"memory": {"kind": "mlp", "activation": "x*sigmoid(2*x)"}},
    ),
    (
        "expressions.readable",
        {"memory": {"chain": ["linear", {"kind": "glu", "activation": "y"}], "every": [1, 2]}},
        "memory.chain[1].activation",
        {"memory": {"chain": ["linear", "glu"], "every": [1, 2]}},
    ),
    (
        "expressions.readable",
        {"retention": {"decay": {**INPUT, "activation": "1 - y"}}},
        "retention.decay.activation",
        {"retention": {"decay": {**INPUT, "activation": "sigmoid"}}},
    ),
    (
        "expressions.readable",
        {"keys": {"predict": "erase"}},
        "keys.predict",
        {"keys": {"erase": "2*predict"}},
    ),
    ("expressions.readable", {"keys": {"value": "k"}}, "keys.value", {"keys": {"value": "2*v"}}),
    (
        "expressions.readable",
        {"block": {"gate": "swish"}},
        "block.gate",
        {"block": {"gate": "none", "query": "1"}},
    ),
    (
        "expressions.says_something",
        {"bias": {"expr": "v**2"}},
        "bias.expr",
        {"bias": {"expr": "-y*v"}},
    ),
    (
        "expressions.says_something",
        {"features": {"expr": "2"}},
        "features.expr",
        {"features": {"expr": "2*x"}},
    ),
    (
        "expressions.norm_in_conditions_only",
        {"bias": {"expr": "n + e"}},
        "bias.expr",
        {"bias": {"expr": "where(n < 1, e**2, abs(e))"}},
    ),
    (
        "expressions.smooth_where_kinked",
        {"bias": {"expr": "e**2", "smooth": 9}},
        "bias.smooth",
        {"bias": {"kind": "lp", "p": 1, "smooth": 9}},
    ),
    ("coefficients.identifiers", {"coefficients": {"lambda": 1}}, "coefficients.lambda", {}),
    ("coefficients.identifiers", {"coefficients": {"λ": 1}}, "coefficients.λ", {}),
    ("coefficients.identifiers", {"coefficients": {"e": 1}}, "coefficients.e", {}),
    ("coefficients.identifiers", {"coefficients": {"exp": 1}}, "coefficients.exp", {}),
    (
        "coefficients.identifiers",
        {"coefficients": {"log_a": 1}},
        "coefficients.log_a",
        {"coefficients": {"a": 0.5}, "retention": {"decay": "a"}},
    ),
    (
        "coefficients.one_name_each",
        {"coefficients": {"eta": 1}},
        "coefficients.eta",
        {"coefficients": {"lam": "token"}, "retention": {"decay": "1 - eta*lam"}},
    ),
    *(
        (
            "coefficients.no_part_of_the_rule",
            {"coefficients": {name: "token"}, "retention": {"decay": f"exp(-{name})"}},
            f"coefficients.{name}",
            {"coefficients": {"lam": "token"}, "retention": {"decay": "exp(-lam)"}},
        )
        for name in ("theta", "beta", "phase", "bonus", "levels", "scale", "scale2", "gamma")
    ),
    ("coefficients.identifiers", {"coefficients": {"sizes": 1}}, "coefficients.sizes", {}),
    (
        "coefficients.one_name_each",
        {"bias": "huber", "coefficients": {"delta": 1}},
        "coefficients.delta",
        {"bias": "huber", "optimizer": "implicit"},
    ),
    (
        "coefficients.named_somewhere",
        {"coefficients": {"a": 1}},
        "coefficients.a",
        {"coefficients": {"a": 1}, "keys": {"value": "a*v"}},
    ),
    (
        "coefficients.named_somewhere",  # by ½w² of the retention that nobody wrote, w is not
        {"coefficients": {"w": 1}},
        "coefficients.w",
        {"coefficients": {"w": 1}, "keys": {"value": "w*v"}},
    ),
    (
        "coefficients.named_somewhere",
        {"coefficients": {"x": 1}, "features": {"expr": "x**3"}},
        "coefficients.x",
        {"features": {"expr": "x**3"}},
    ),
    (
        "coefficients.no_cycles",
        {"retention": {"decay": "1 - alpha"}},
        "retention.decay",
        {"retention": {"decay": "exp(-eta)"}},
    ),
    (
        "coefficients.no_cycles",
        {"retention": {"decay": "eta"}, "optimizer": {"rate": "alpha"}},
        "retention.decay",
        {"retention": {"decay": "1 - 2**(-5 - h)"}, "optimizer": {"rate": "1 - alpha"}},
    ),
    (
        "expressions.finite_constants",
        {"bias": {"expr": "e/0"}},
        "bias.expr",
        {"bias": {"expr": "0/(e*e + 1) + e*e"}},
    ),
    (
        "expressions.finite_constants",
        {"bias": {"expr": "log(0-1)*e"}},
        "bias.expr",
        {"bias": {"expr": "log(2-1/2)*e*e"}},
    ),
    (
        "expressions.finite_constants",
        {"bias": {"expr": "e**2 + inf"}},
        "bias.expr",
        {"bias": {"expr": "min(e**2, inf)"}},
    ),
    (
        "expressions.finite_constants",
        {"features": {"expr": "1/0*x"}},
        "features.expr",
        {"features": {"expr": "1/3*x"}},
    ),
    (
        "expressions.finite_constants",
        {"retention": {"decay": "1/0"}},
        "retention.decay",
        {"retention": {"decay": "1/3"}},
    ),
    (
        "expressions.finite_constants",
        {"retention": {"decay": "h/(2 - 2)"}},
        "retention.decay",
        {"retention": {"decay": "1/(h + 2)"}},
    ),
    (
        "expressions.finite_constants",
        {"bias": {"expr": "exp(1000)*e*e"}},
        "bias.expr",
        {"bias": {"expr": "exp(2)*e*e"}},
    ),
    (
        "coefficients.finite",
        {"optimizer": {"rate": float("inf")}},
        "optimizer.rate",
        {"optimizer": {"method": "implicit", "rate": float("inf")}},
    ),
    (
        "coefficients.finite",
        {"block": {"scale": float("nan")}},
        "block.scale",
        {"block": {"scale": 0.5}},
    ),
    (
        "coefficients.in_range",
        {"retention": {"decay": 0}},
        "retention.decay",
        {"retention": {"decay": 1}},
    ),
    (
        "coefficients.finite",
        {"optimizer": {"rate": " inf"}},
        "optimizer.rate",
        {"optimizer": {"method": "implicit", "rate": "inf"}},
    ),
    (
        "coefficients.finite",
        {"optimizer": {"method": "implicit", "rate": "-inf"}},
        "optimizer.rate",
        {"optimizer": {"method": "implicit", "rate": {"expr": "inf"}}},
    ),
    (
        "coefficients.in_range",
        {"retention": {"decay": "2"}},
        "retention.decay",
        {"retention": {"decay": "1/2"}},
    ),
    (
        "coefficients.in_range",
        {"retention": {"decay": "pi"}},
        "retention.decay",
        {"retention": {"decay": "pi/4"}},
    ),
    (
        "coefficients.in_range",
        {"retention": {"decay": 1.5}},
        "retention.decay",
        {"retention": {"decay": 0.5}},
    ),
    (
        "coefficients.in_range",
        {"retention": {"decay": {**INPUT, "init": 2}}},
        "retention.decay.init",
        {"retention": {"decay": {**INPUT, "init": 0.9}}},
    ),
    (
        "coefficients.in_range",
        {"optimizer": {"rate": -1}},
        "optimizer.rate",
        {"optimizer": {"rate": 0}},
    ),
    (
        "coefficients.in_range",
        {"bias": {"kind": "huber", "delta": 0}},
        "bias.delta",
        {"bias": {"kind": "robust", "Delta": 0}},
    ),
    (
        "coefficients.in_range",
        {"retention": {"constraint": {"kind": "ball", "radius": 0}}},
        "retention.constraint.radius",
        {"retention": {"constraint": {"kind": "ball", "radius": 2}}},
    ),
    (
        "coefficients.in_range",
        {"weights": {"kind": "geometric", "gamma": 2}, **EXACT},
        "weights.gamma",
        {"weights": {"kind": "geometric", "gamma": 0.5}, **EXACT},
    ),
    (
        "coefficients.shapes",
        {"optimizer": {"rate": "channel"}},
        "optimizer.rate",
        {"optimizer": {"rate": "channel"}, "memory": "diagonal"},
    ),
    (
        "coefficients.shapes",
        {"bias": {"kind": "huber", "delta": CHANNEL}},
        "bias.delta",
        {"bias": {"kind": "huber", "delta": {**INPUT, "per": "value"}}},
    ),
    (
        "optimizers.fields_of_the_method",
        {"optimizer": {"momentum": 0.9}},
        "optimizer.momentum",
        {"optimizer": {"method": "momentum", "momentum": 0.9}},
    ),
    (
        "optimizers.fields_of_the_method",
        {"optimizer": {"ns_steps": 3}},
        "optimizer.ns_steps",
        {"optimizer": {"method": "muon", "ns_steps": 3}},
    ),
    (
        "optimizers.fields_of_the_method",
        {"optimizer": {"from": "origin"}},
        "optimizer.from",
        {"optimizer": {"method": "batch", "from": "origin"}},
    ),
    (
        "optimizers.fields_of_the_method",
        {**EXACT, "optimizer": {"method": "exact", **ANCHOR}},
        "optimizer.anchor",
        {**EXACT, "optimizer": {"method": "exact", "solver": {"kind": "conjugate-gradients"}}},
    ),
    (
        "optimizers.matrices_for_muon",
        {"memory": "diagonal", "optimizer": "muon"},
        "optimizer.method",
        {"memory": "diagonal", "optimizer": "adam"},
    ),
    (
        "optimizers.matrices_for_muon",
        {"block": {"value_dim": 1}, "optimizer": "muon"},
        "optimizer.method",
        {"block": {"value_dim": 2}, "optimizer": "muon"},
    ),
    (
        "optimizers.fields_of_the_method",
        {"optimizer": {"method": "muon", "beta2": 0.9}},
        "optimizer.beta2",
        {"optimizer": {"method": "adam", "beta2": "token"}},
    ),
    (
        "optimizers.fields_of_the_method",
        {"optimizer": {"epsilon": 0.1}},
        "optimizer.epsilon",
        {"optimizer": {"method": "adam", "epsilon": 0.1}},
    ),
    (
        "coefficients.in_range",
        {"optimizer": {"method": "adam", "beta2": 1}},
        "optimizer.beta2",
        {"optimizer": {"method": "adam", "beta2": 0}},
    ),
    (
        "coefficients.in_range",
        {"optimizer": {"method": "adam", "momentum": 1}},
        "optimizer.momentum",
        {"optimizer": {"method": "momentum", "momentum": 1}},
    ),
    (
        "optimizers.steps_entry_by_entry",
        {"optimizer": {"method": "adam", "rate_at": "inside"}},
        "optimizer.rate_at",
        {"optimizer": {"method": "adam", "rate_at": "outside"}},
    ),
    (
        "optimizers.steps_entry_by_entry",
        {"optimizer": {"method": "adam", "rate": {"normalized": True}}},
        "optimizer.rate",
        {"optimizer": {"rate": {"normalized": True}}, "bias": "l2"},
    ),
    (
        "optimizers.steps_entry_by_entry",
        {"optimizer": {"method": "adam", "every": 4}},
        "optimizer.every",
        {"optimizer": {"method": "adam", "anchor": {"chunk": 4}}},
    ),
    (
        "optimizers.steps_entry_by_entry",
        {"memory": {"chain": ["mlp", "mlp"], "every": [1, 4]}, "optimizer": "adam"},
        "memory.every",
        {"memory": {"chain": ["mlp", "mlp"], "every": [1, 1]}, "optimizer": "adam"},
    ),
    (
        "optimizers.steps_entry_by_entry",
        {
            "bias": "l2",
            "optimizer": {"method": "adam", "momentum": {"from": "input", "on": "write"}},
        },
        "optimizer.momentum.on",
        {"bias": "l2", "optimizer": {"method": "adam", "momentum": "token"}},
    ),
    (
        "optimizers.steps_entry_by_entry",
        {"optimizer": {"method": "adam", "momentum": {"from": "input", "per": "key"}}},
        "optimizer.momentum.per",
        {"optimizer": {"method": "adam", "momentum": "learned"}},
    ),
    (
        "optimizers.closed_steps_are_linear",
        {"memory": "mlp", "optimizer": "implicit"},
        "optimizer.method",
        {"memory": "mlp", "optimizer": "muon"},
    ),
    (
        "optimizers.methods_of_kept_pairs",
        {"optimizer": "nonparametric"},
        "optimizer.method",
        {**ATTENTION, "optimizer": "nonparametric"},
    ),
    (
        "optimizers.methods_of_kept_pairs",
        {**ATTENTION, "optimizer": "muon"},
        "optimizer",
        {**ATTENTION, "optimizer": "gd"},
    ),
    (
        "optimizers.solvers_where_something_is_solved",
        {**ATTENTION, "optimizer": {"method": "nonparametric", "solver": {"iterations": 9}}},
        "optimizer.solver",
        {
            "memory": {"kind": "nonparametric", "degree": 1},
            "weights": "similarity",
            "optimizer": {"method": "nonparametric", "solver": {"iterations": 9}},
        },
    ),
    (
        "optimizers.exact_has_a_ridge",
        {"bias": "l2", "optimizer": "exact"},
        "retention.global",
        EXACT,
    ),
    (
        "optimizers.exact_has_a_ridge",
        {**EXACT, "retention": {"global": {"l2": 0}}},
        "retention.global",
        {**EXACT, "retention": {"global": {"l2": "learned"}}},
    ),
    (
        "optimizers.exact_keeps_by_weights",
        {**EXACT, "retention": {"global": {"l2": 1}, "order": "before"}},
        "retention.order",
        {**EXACT, "weights": "geometric"},
    ),
    (
        "optimizers.exact_is_one_linear_solve",
        {**EXACT, "retention": {"global": {"l2": 1}, "constraint": "ball"}},
        "retention.constraint",
        EXACT,
    ),
    (
        "optimizers.exact_is_one_linear_solve",
        {"bias": "l2", "optimizer": BATCH, "retention": {"normalize": "rows"}},
        "retention.normalize",
        {"bias": "l2", "optimizer": BATCH},
    ),
    (
        "optimizers.exact_is_one_linear_solve",
        {
            "bias": "l2",
            "optimizer": BATCH,
            "retention": {"global": {"elastic": {"l1": 1, "l2": 1}}},
        },
        "retention.global",
        {"bias": "l2", "optimizer": BATCH, "retention": {"global": {"l2": 1}}},
    ),
    (
        "optimizers.closed_steps_are_linear",
        {"bias": "l2", "optimizer": BATCH, "memory": {"kind": "mlp", "depth": 2}},
        "optimizer.method",
        {"bias": "l2", "optimizer": BATCH},
    ),
    (
        "optimizers.closed_steps_are_linear",
        {**EXACT, "memory": {"kind": "mlp", "depth": 1, "residual": True}},
        "memory.residual",
        {**EXACT, "memory": {"kind": "mlp", "depth": 1, "residual": False, "norm": False}},
    ),
    (
        "optimizers.keys_of_one_loss",
        {**EXACT, "keys": {"predict": "own"}},
        "keys",
        {**EXACT, "keys": {"value": "2*v"}},
    ),
    (
        "optimizers.keys_of_one_loss",
        {"bias": "l2", "optimizer": BATCH, "keys": {"write": "own"}},
        "keys",
        {"bias": "l2", "optimizer": BATCH},
    ),
    (
        "coefficients.shapes_of_expressions",
        {"retention": {"decay": "channel"}, "optimizer": {"rate": "1 - alpha"}},
        "optimizer.rate",
        {"retention": {"decay": "token"}, "optimizer": {"rate": "1 - alpha"}},
    ),
    (
        "coefficients.shapes_of_losses",
        {"bias": {"expr": "(1 - alpha)*e**2"}, "retention": {"decay": "channel"}},
        "bias.expr",
        {"bias": {"expr": "(1 - alpha)*e**2"}, "retention": {"decay": "token"}},
    ),
    (
        "coefficients.shapes_of_losses",
        {"bias": {"kind": "huber", "over": "norm", "delta": {"from": "input", "per": "value"}}},
        "bias",
        {"bias": {"kind": "huber", "delta": {"from": "input", "per": "value"}}},
    ),
    (
        "optimizers.one_place_for_the_gradient",
        {"retention": {"order": "before"}, "optimizer": ANCHOR},
        "retention.order",
        {"retention": {"order": "before"}, "optimizer": {"anchor": {"chunk": 1}}},
    ),
    (
        "optimizers.one_place_for_the_gradient",
        {"optimizer": {"inner_steps": 2, **ANCHOR}},
        "optimizer.inner_steps",
        {"optimizer": {"inner_steps": 2}},
    ),
    (
        "optimizers.anchors_to_read",
        {"readout": {"memory": "anchor"}},
        "readout.memory",
        {"readout": {"memory": "anchor"}, "optimizer": ANCHOR},
    ),
    (
        "optimizers.normalized_steps",
        {"optimizer": {"method": "flow", "rate": {"normalized": True}}},
        "optimizer.rate",
        {"optimizer": {"rate": {"normalized": True}}},
    ),
    ("optimizers.windows", {"window": "all"}, "window", {"window": 64}),
    ("optimizers.windows", {"window": 4, **EXACT}, "window", {"window": "all", **EXACT}),
    (
        "optimizers.windows_or_micro_steps",
        {"window": 4, "optimizer": {"micro_steps": 2}},
        "optimizer.micro_steps",
        {"optimizer": {"micro_steps": 2}},
    ),
    (
        "optimizers.weights_of_a_window",
        {"weights": "window"},
        "weights",
        {"weights": "window", "window": 4},
    ),
    (
        "optimizers.weights_that_multiply",
        {"weights": "geometric"},
        "weights",
        {"weights": "geometric", **EXACT},
    ),
    ("optimizers.weights_by_similarity", {"weights": "similarity"}, "weights", ATTENTION),
    ("optimizers.weights_by_similarity", {"memory": "nonparametric"}, "weights", ATTENTION),
    (
        "optimizers.momentum_on_a_write",
        {
            "bias": {"expr": "abs(e)**3"},
            "optimizer": {"method": "momentum", "momentum": {"value": 1, "on": "write"}},
        },
        "optimizer.momentum",
        {
            "bias": "l2",
            "optimizer": {"method": "momentum", "momentum": {"value": 1, "on": "write"}},
        },
    ),
    (
        "retentions.one_decay",
        {"retention": {"decay": "token", "global": {"l2": 1}}},
        "retention.decay",
        {"retention": {"decay": "token", "global": {"elastic": {"l1": 1, "l2": 0}}}},
    ),
    (
        "retentions.shrinking_on_a_simplex",
        {"retention": {"constraint": SIMPLEX, "global": {"elastic": {"l1": 1, "l2": 0}}}},
        "retention.global",
        {"retention": {"constraint": SIMPLEX, "global": {"entropy": 1}}},
    ),
    (
        "retentions.shrinking_on_a_simplex",
        {"retention": {"constraint": SIMPLEX, "global": {"lq": 4}, "view": "ftrl"}},
        "retention.global",
        {"retention": {"constraint": SIMPLEX, "global": {"l2": 1}}},
    ),
    (
        "retentions.one_size",
        {"retention": {"constraint": SIMPLEX, "normalize": "rows"}},
        "retention.normalize",
        {"retention": {"normalize": "rows"}},
    ),
    (
        "retentions.norms_in_the_dual",
        {"retention": {"global": {"lq": 4}}},
        "retention.view",
        {"retention": {"global": {"lq": 4}, "view": "ftrl"}},
    ),
    (
        "retentions.link_alone",
        {"retention": {"link": "tanh(a)", "local": "kl", "view": "ftrl"}},
        "retention.local",
        {"retention": {"link": "tanh(a)", "view": "ftrl"}},
    ),
    (
        "retentions.link_alone",
        {"retention": {"link": "tanh(a)"}},
        "retention.view",
        {"retention": {"link": "tanh(a)", "view": "ftrl", "decay": "token"}},
    ),
    (
        "retentions.link_alone",
        {
            "retention": {"link": "a/nu", "view": "ftrl", "global": {"l2": 1}},
            "optimizer": "exact",
            "bias": "l2",
            "window": "all",
        },
        "retention.link",
        {"retention": {"global": {"l2": 1}}, "optimizer": "exact", "bias": "l2", "window": "all"},
    ),
    (
        "retentions.names_of_a_link",
        {
            "retention": {"link": "a/nu", "view": "ftrl", "decay": "1 - nu"},
            "coefficients": {"nu": "token"},
        },
        "retention.link",
        {
            "retention": {"link": "a/nu", "view": "ftrl", "decay": "1 - mu"},
            "coefficients": {"mu": "token"},
        },
    ),
    (
        "retentions.names_of_a_generator",
        {
            "retention": {"local": {"bregman": "cosh(w)"}},
            "bias": {"expr": "w*e**2"},
            "coefficients": {"w": "token"},
        },
        "retention.local.bregman",
        {
            "retention": {"local": "kl", "constraint": "simplex"},  # whose w nobody wrote
            "bias": {"expr": "w*e**2"},
            "coefficients": {"w": "token"},
        },
    ),
    (
        "retentions.names_of_a_generator",
        {
            "retention": {"local": {"f-divergence": "(x - 1)**2"}, "constraint": "simplex"},
            "bias": {"expr": "x*e**2"},
            "coefficients": {"x": "token"},
        },
        "retention.local.f-divergence",
        {
            "retention": {"local": {"f-divergence": "chi2"}, "constraint": "simplex"},
            "bias": {"expr": "x*e**2"},
            "coefficients": {"x": "token"},
        },
    ),
    (
        "levels.levels_of_a_linear_memory",
        {"readout": {"levels": "token"}, "memory": "mlp"},
        "readout.levels",
        {"readout": {"levels": "token"}},
    ),
    (
        "levels.levels_of_a_linear_memory",
        {"readout": {"levels": "token", "normalizer": "sum"}},
        "readout.levels",
        {"readout": {"levels": "token", "max_levels": 12}},
    ),
    (
        "levels.levels_of_a_linear_memory",
        {"readout": {"max_levels": 12}},
        "readout.max_levels",
        {"readout": {"levels": "token", "max_levels": 12}},
    ),
    (
        "levels.read_by_nothing",
        {"readout": {"levels": "token"}, "retention": {"decay": "sigmoid(levels)"}},
        "retention.decay",
        {"readout": {"levels": "alpha"}, "retention": {"decay": "token"}},
    ),
    (
        "levels.read_by_nothing",
        {"retention": {"phase": "learned"}, "optimizer": {"rate": "sigmoid(phase)"}},
        "optimizer.rate",
        {"retention": {"phase": "learned"}, "optimizer": {"rate": "token"}},
    ),
    (
        "levels.read_by_nothing",
        {"window": 2, "weights": "window", "optimizer": {"rate": "1 - gamma"}},
        "optimizer.rate",
        {"weights": "token", "optimizer": {"rate": "1 - gamma"}},
    ),
    (
        "retentions.decay_of_rows",
        {"retention": {"row_decay": "token", "decay": "token"}},
        "retention.row_decay",
        {"retention": {"row_decay": {**INPUT, "per": "value"}, "decay": "outer"}},
    ),
    (
        "retentions.phase_of_a_state",
        {"memory": "mlp", "retention": {"phase": "channel"}},
        "retention.phase",
        {"memory": "diagonal", "retention": {"phase": "channel"}},
    ),
    (
        "retentions.rows_of_a_matrix",
        {"memory": "diagonal", "retention": {"constraint": {**SIMPLEX, "over": "rows"}}},
        "retention.constraint.over",
        {"memory": "diagonal", "retention": {"constraint": SIMPLEX}},
    ),
    (
        "retentions.retention_of_kept_pairs",
        {**ATTENTION, "retention": "kl"},
        "retention.local",
        {**ATTENTION, "retention": {"decay": "token"}},
    ),
    (
        "retentions.retention_of_kept_pairs",
        {**ATTENTION, "retention": {"decay": "channel"}},
        "retention.decay",
        {**ATTENTION, "retention": {"decay": "token"}},
    ),
    (
        "retentions.retention_of_a_kernel",
        {"features": KERNEL, "retention": {"decay": "channel"}},
        "retention.decay",
        {"features": KERNEL, "retention": {"decay": "token"}},
    ),
    (
        "memories.chains",
        {"memory": {"chain": ["mlp", "mlp"], "every": [1]}},
        "memory.every",
        {"memory": {"chain": ["mlp", "mlp"], "every": [1, 8]}},
    ),
    (
        "memories.chains",
        {"memory": {"chain": ["mlp", "mlp"], "every": [4, 6]}},
        "memory.every",
        {"memory": {"chain": ["mlp", "mlp", "mlp"], "every": [8, 1, 4]}},
    ),
    (
        "memories.chains",
        {"memory": {"chain": ["mlp"], "every": [0]}},
        "memory.every",
        {"memory": {"chain": ["mlp"], "every": [1]}},
    ),
    (
        "memories.parameters_in_a_chain",
        {"memory": {"chain": ["mlp", "nonparametric"], "every": [1, 1]}},
        "memory.chain[1]",
        {"memory": {"chain": ["mlp", "diagonal"], "every": [1, 1]}},
    ),
    (
        "memories.one_size",
        {"memory": "mlp", "block": {"key_dim": 8, "value_dim": 6}},
        "memory",
        {"memory": {"kind": "mlp", "residual": False}, "block": {"key_dim": 8, "value_dim": 6}},
    ),
    (
        "memories.one_size",
        {"memory": "diagonal", "block": {"key_dim": 8, "value_dim": 6}},
        "memory",
        {"memory": "diagonal", "block": {"key_dim": 8, "value_dim": 8}},
    ),
    (
        "memories.diagonal_features",
        {"memory": "diagonal", "features": "taylor"},
        "features",
        {"memory": "diagonal", "features": "elu"},
    ),
    (
        "memories.weights_of_degrees",
        {"features": {"kind": "polynomial", "degree": 2, "a": [1, 1]}},
        "features.a",
        {"features": {"kind": "polynomial", "degree": 2, "a": [1, 1, "learned"]}},
    ),
    (
        "memories.one_size",
        {"memory": "diagonal", "retention": TURNED, "block": {"key_dim": 8, "value_dim": 8}},
        "memory",
        {"memory": "diagonal", "retention": TURNED, "block": {"key_dim": 8, "value_dim": 16}},
    ),
    (
        "memories.one_kernel",
        {**ATTENTION, "features": "exponential"},
        "features",
        {**ATTENTION, "features": "elu"},
    ),
    (
        "memories.steps_behind_a_kernel",
        {"features": KERNEL, "optimizer": "muon"},
        "optimizer.method",
        {"features": KERNEL, "bias": "l2", "memory": "mlp"},
    ),
    (
        "optimizers.weights_by_similarity",
        {"memory": {"kind": "interpolation", "ridge": 0.1}, "bias": "l2", "weights": "token"},
        "weights",
        {"memory": {"kind": "interpolation", "ridge": 0.1}, "bias": "l2"},
    ),
    (
        "memories.steps_behind_a_kernel",
        {"features": KERNEL, **EXACT},
        "optimizer.method",
        {"memory": {"kind": "interpolation", "ridge": 0.1}, "bias": "l2"},
    ),
    (
        "memories.keys_of_a_linear_memory",
        {"memory": "mlp", "keys": {"predict": "own"}},
        "keys.predict",
        {"keys": {"predict": "own", "erase": "own", "write": "k + erase"}},
    ),
    (
        "memories.keys_of_a_linear_memory",
        {"features": KERNEL, "keys": {"write": "own"}},
        "keys.write",
        {"features": KERNEL, "keys": {"predict": "own"}, "bias": "l2"},
    ),
    (
        "memories.keys_that_move",
        {"keys": {"carry": "own"}, "bias": "l2"},
        "keys.carry",
        {"keys": {"carry": "own"}, **ATTENTION},
    ),
    (
        "memories.value_of_its_own",
        {"keys": {"value": "own"}},
        "keys.value",
        {"keys": {"value": "v/2"}},
    ),
    (
        "memories.keys_by_channel",
        {"coefficients": {"a": CHANNEL}, "keys": {"value": "a*v"}},
        "keys.value",
        {"coefficients": {"a": CHANNEL}, "keys": {"erase": "a*k"}},
    ),
    (
        "memories.normaliser",
        {"memory": "mlp", "readout": {"normalizer": "sum"}},
        "readout.normalizer",
        {"features": "exponential", "readout": {"normalizer": "sum"}},
    ),
    (
        "memories.normaliser",
        {"features": {**KERNEL, "normalise": "row"}, "readout": {"normalizer": "sum"}},
        "readout.normalizer",
        {"features": {**KERNEL, "normalise": "row"}},
    ),
    (
        "memories.bonus",
        {"memory": "mlp", "readout": {"bonus": "learned"}},
        "readout.bonus",
        {"readout": {"bonus": {"from": "parameter", "per": "key"}, "memory": "before"}},
    ),
    (
        "blocks.attention_beside",
        {"block": {"attention_window": 64}},
        "block.attention_window",
        {"block": {"attention_window": 64, "hybrid": "gate"}},
    ),
    (
        "blocks.attention_beside",
        {"block": {"persistent": 4}},
        "block.persistent",
        {"block": {"persistent": 4, "segment": 64, "hybrid": "context"}},
    ),
    (
        "blocks.attention_beside",
        {"block": {"rotary": "attention"}},
        "block.rotary",
        {"block": {"rotary": "memory"}},
    ),
    (
        "blocks.segments_of_context",
        {"block": {"segment": 64}},
        "block.segment",
        {"block": {"segment": 64, "hybrid": "context"}},
    ),
    (
        "blocks.segments_of_context",
        {"block": {"hybrid": "context"}},
        "block.segment",
        {"block": {"hybrid": "context", "segment": 1}},
    ),
    (
        "blocks.whole_groups",
        {"block": {"heads": 4, "groups": 3}},
        "block.heads",
        {"block": {"heads": 6, "groups": 3}},
    ),
    (
        "blocks.window_of_attention",
        {"block": {"hybrid": "layer", "persistent": 2}},
        "block.attention_window",
        {"block": {"hybrid": "layer", "persistent": 2, "attention_window": 1}},
    ),
    (
        "blocks.window_of_attention",
        {"block": {"hybrid": "context", "segment": 8, "attention_window": 8}},
        "block.attention_window",
        {"block": {"hybrid": "context", "segment": 8, "rotary": "attention"}},
    ),
    (
        "memories.chain_or_interval",
        {"memory": {"chain": ["mlp"], "every": [2]}, "optimizer": {"method": "muon", "every": 2}},
        "optimizer.every",
        {"memory": "mlp", "optimizer": {"method": "muon", "every": 2}},
    ),
    (
        "memories.slots_are_linear",
        {"memory": {"kind": "linear", "slots": 8}, "features": KERNEL},
        "memory.slots",
        {"memory": {"kind": "linear", "slots": 8}},
    ),
    (
        "memories.slots_are_linear",
        {"memory": {"kind": "linear", "slots": 8}, "optimizer": "muon"},
        "memory.slots",
        {"memory": {"kind": "linear", "slots": 8}, "optimizer": {"inner_steps": 2}},
    ),
    (
        "memories.normaliser",
        {"readout": {"normalizer": "sum"}, "optimizer": {"every": 4}},
        "readout.normalizer",
        {"readout": {"normalizer": "sum"}},
    ),
    (
        "memories.bonus",
        {"readout": {"bonus": "channel"}, "optimizer": "adam"},
        "readout.bonus",
        {"readout": {"bonus": "channel"}},
    ),
    (
        "memories.pairs_are_read_after",
        {**ATTENTION, "readout": {"memory": "before"}},
        "readout.memory",
        ATTENTION,
    ),
]


def case_name(case: Case) -> str:
    return f"{case[0]}: {case[1]}"[:70]


def spec_of(axes: dict[str, Any]) -> Spec:
    return Spec.model_validate({"name": "x", **axes}, by_name=False, by_alias=True)


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_a_rule_refuses_at_the_place_it_is_about(case: Case) -> None:
    rule, refused, where, _ = case
    assert where in [issue.where for issue in RULES[rule](spec_of(refused))]
    with pytest.raises(InvalidSpec) as caught:
        load({"name": "x", **refused})
    assert where in [issue.where for issue in caught.value.issues]


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_what_stands_next_to_it_is_fine(case: Case) -> None:
    load({"name": "x", **case[3]})


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_every_rule_says_what_it_is_and_has_a_case(rule: Rule) -> None:
    assert rule.__doc__
    assert any(RULES[name] is rule for name, *_ in CASES)


@pytest.mark.parametrize(
    ("axes", "text"),
    [
        (
            {"retention": {"decay": "token", "global": {"l2": 0.1}}},
            "retention.decay: a decoupled decay beside a global l2 shrinks the memory twice (leaky"
            ' LMS is decay: {expr: "1 - eta*lam"}; or leave one of the two out)',
        ),
        (
            {"retention": {"order": "before"}, "optimizer": ANCHOR},
            "retention.order: under a chunk anchor the gradient sees the memory of the chunk's"
            " start, so no decay can come before it (write order: after, or anchor: token)",
        ),
        (
            {"memory": "diagonal", "optimizer": "muon"},
            "optimizer.method: Muon orthogonalises a matrix, and a diagonal memory is a vector"
            " (use gd or momentum)",
        ),
        (
            {"retention": {"global": {"lq": 4}}},
            "retention.view: the norm of lq couples all entries, so it cannot be solved beside a"
            " local term (write view: ftrl)",
        ),
        (
            {"bias": "l2", "optimizer": "exact"},
            "retention.global: an exact solver needs a ridge above 0, or the first tokens have many"
            " solutions (write global: {l2: 0.5})",
        ),
        (
            {"weights": "window"},
            "weights: window weights are one for each pair of the window, which needs a size above"
            " 1 (write window: 4, or weights: token)",
        ),
        (
            {"bias": "huber", "coefficients": {"delta": 1}},
            "coefficients.delta: two coefficients are called delta: this one and bias.delta (give a"
            " coefficient of your own another name)",
        ),
        (
            {"coefficients": {"theta": 1}, "retention": {"decay": "exp(-theta)"}},
            "coefficients.theta: theta is what a rule calls its optimizer.momentum, which this spec"
            " leaves out (give a coefficient of your own another name)",
        ),
        (
            {"retention": {"decay": "eta"}, "optimizer": {"rate": "1 - alpha"}},
            "retention.decay: coefficients depend on each other in a circle: alpha -> eta -> alpha",
        ),
        (
            {"retention": {"local": {"f-divergence": "chi"}}},
            "retention.local.f-divergence: unknown symbol: read 'chi', allowed: chi2, hellinger,"
            " jensen-shannon, reverse-kl, kl, alpha, eta, x, pi, inf; did you mean 'chi2'?",
        ),
        (
            {"bias": {"expr": "n + abs(e)"}},
            "bias.expr: n, the norm of all coordinates, is combined with e, of a single coordinate,"
            " which is allowed in conditions only: read 'n + abs(e)' (write a radial"
            " loss in n alone, or a sum over coordinates in e, y and v)",
        ),
        (
            {"block": {"hybrid": "gate", "segment": 16}},
            "block.segment: segments belong to the memory as context (write hybrid: context, or"
            " leave it out)\nblock.attention_window: the attention of hybrid: gate slides over a"
            " window, which needs a size (write attention_window: 64)",
        ),
        ({"retention": {"decay": 1.5}}, "retention.decay: must be in (0, 1]: read '1.5'"),
        (
            {"coefficients": {"lambda": 1}},
            "coefficients.lambda: a coefficient's name must not be a keyword of Python: read"
            " 'lambda'; did you mean 'lam'?",
        ),
        (
            {"coefficients": {"e": "token"}},
            "coefficients.e: a coefficient's name must not be a symbol, a function or an argument"
            " of the operator: read 'e'",
        ),
        (
            {"coefficients": {"eta": "token"}, "optimizer": {"rate": "token"}},
            "coefficients.eta: two coefficients are called eta: this one and optimizer.rate (give"
            " a coefficient of your own another name)",
        ),
        (
            {"coefficients": {"token": 3}, "optimizer": {"rate": "token"}},
            "coefficients.token: no expression names this coefficient (by itself, token is a word:"
            " {from: input})",
        ),
        ({"coefficients": {"c": 3}}, "coefficients.c: no expression names this coefficient"),
    ],
)
def test_full_messages(axes: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        load({"name": "x", **axes})
    assert str(caught.value) == text


def test_every_reason_is_given_at_once() -> None:
    with pytest.raises(InvalidSpec) as caught:
        combinations.check(
            spec_of({"memory": "mlp", "retention": {"decay": 2}, "readout": {"bonus": "learned"}})
        )
    places = [issue.where for issue in caught.value.issues]
    assert places == ["retention.decay", "readout.bonus"]


def test_a_sound_spec_passes() -> None:
    combinations.check(Spec(name="x"))
