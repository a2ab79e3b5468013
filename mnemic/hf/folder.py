"""A model's folder: written whole or not at all, read back with one clear message."""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from mnemic.errors import CheckFailed, EnvironmentFailed, UsageError
from mnemic.hf.card import UNTRAINED, card
from mnemic.hf.checks import Check
from mnemic.hf.code import AUTO_MAP, model_code
from mnemic.hf.configuration_mnemic import MnemicConfig
from mnemic.hf.modeling_mnemic import MnemicForCausalLM
from mnemic.hf.refusals import one_line_of


def save(
    model: MnemicForCausalLM,
    folder: Path,
    checks: Sequence[Check] = (),
    *,
    trained: str = UNTRAINED,
    also: Sequence[Path] = (),
    replace: bool = False,
    weights: Mapping[str, Tensor] | None = None,
) -> Path:
    """Write a model as a folder that transformers loads: configuration, weights, code and card.

    Args:
        model: with parameters of any type.
        folder: new or empty; with ``replace`` also an earlier model's.
        checks: what was checked, for the card; one that failed is refused.
        trained: what the card says of the model's training.
        also: files to put in as they are, such as a tokenizer's.
        replace: whether a model that is there may be written over.
        weights: by name, in place of the model's own.

    Raises:
        CheckFailed: a check did not hold; nothing is written.
        UsageError: a folder that holds something else.
        EnvironmentFailed: it cannot be written.
    """
    wrong = [f"{check.name}: {check.error:.1e}" for check in checks if not check.passed]
    if wrong:
        raise CheckFailed(f"the model is not saved, since these are not equal: {'; '.join(wrong)}")
    folder = folder.expanduser().resolve()
    refuse_foreign(folder, replace=replace)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            model.config.auto_map = dict(AUTO_MAP)
            with one_line_of(folder):
                model.save_pretrained(beside, state_dict=weights and dict(weights))
            for name, text in model_code(model.config).items():
                (beside / name).write_text(text, encoding="utf-8")
            (beside / "README.md").write_text(card(model, checks, trained), encoding="utf-8")
            for path in also:
                shutil.copyfile(path, beside / path.name)
            beside.chmod(0o755)
            if folder.exists():
                shutil.rmtree(folder)
            os.replace(beside, folder)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    except OSError as error:
        raise EnvironmentFailed(f"cannot write {folder}: {error.strerror}") from None
    return folder


def refuse_foreign(folder: Path, *, replace: bool) -> None:
    """Refuse a folder that holds anything but a model that may be replaced.

    Raises:
        UsageError: it does.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f"{folder}: read a file, a folder to write to is needed")
    if not any(folder.iterdir()):
        return
    if not is_model(folder):
        raise UsageError(f"{folder}: holds files that are no model of mnemic; choose another")
    if not replace:
        raise UsageError(f"{folder}: holds a model; --replace writes over it, or choose another")


def is_model(folder: Path) -> bool:
    """Return whether a folder holds the configuration of a model of memory layers."""
    try:
        found = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("model_type") == MnemicConfig.model_type


def load(folder: Path) -> MnemicForCausalLM:
    """Return the model of a folder, by the classes that are installed.

    Raises:
        UsageError: the folder holds none, or weights are missing.
    """
    if not is_model(folder):
        raise UsageError(f"{folder}: no model of mnemic (its config.json is missing or another's)")
    try:
        with one_line_of(folder):
            found, told = MnemicForCausalLM.from_pretrained(folder, output_loading_info=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(f"{folder}: the model cannot be read: {error}") from None
    if wrong := sorted([*told["missing_keys"], *told["unexpected_keys"]]):
        raise UsageError(f"{folder}: weights missing or unknown: {', '.join(wrong[:5])}")
    model: MnemicForCausalLM = found
    return model
