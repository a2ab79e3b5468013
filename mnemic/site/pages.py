"""The pages that are made: of systems, of the map, of the audit, of claims and capacity."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from mnemic.audit import recorded
from mnemic.audit.catalogue import papers
from mnemic.audit.entry import Paper
from mnemic.audit.verdict import KINDS
from mnemic.capacity.recorded import DIM, DRAWS, PAIRS
from mnemic.claims.catalogue import CLAIMS, about
from mnemic.claims.page import summary
from mnemic.relations import Map, Relation
from mnemic.site import guides
from mnemic.site.markdown import Ready, escaped, render
from mnemic.site.picture import picture
from mnemic.site.reproduced import capacity, reproduced
from mnemic.site.results import measured
from mnemic.site.system import System

USE: Final = """\
import mnemic

rule = mnemic.compile("{source}")
layer = rule.layer(dim=512)  # an nn.Module, [B, T, dim] -> [B, T, dim]"""


def pages(
    systems: Sequence[System], drawn: Map, guide_pages: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield each page's name and its Markdown."""
    names = frozenset(system.name for system in systems)
    guide = partial(_guide, there=frozenset(guide_pages))
    link = partial(_link, names=names)
    shown = partial(render, guide=guide, link=link)
    for system in systems:
        yield f"systems/{system.name}", shown("system.md", **_system(system, drawn, link))
    yield "systems/index", shown("systems.md", systems=systems, table=_table(systems))
    relations = [_relation(r, link) for r in drawn.direct]
    svg = picture(drawn, lambda name: f"systems/{name}.html")
    yield "map", shown("map.md", drawn=drawn, svg=svg, relations=relations)
    found = [_judged(paper) for paper in papers().values()]
    toctree = ":hidden:\n\n" + "\n".join(p["paper"].id for p in found)
    yield "audit/index", shown("audit.md", papers=found, kinds=KINDS, toctree=toctree)
    for paper in found:
        yield f"audit/{paper['paper'].id}", shown("paper.md", p=paper)
    yield from _claims(shown)
    yield "capacity", shown("capacity.md", table=_capacities(systems), dim=DIM, pairs=PAIRS,
                            draws=DRAWS)  # fmt: skip


def _claims(shown: Callable[..., Ready]) -> Iterator[tuple[str, Ready]]:
    """Yield the page of all claims, and one of each."""
    told = [reproduced(claim) for claim in CLAIMS]
    toctree = ":hidden:\n\n" + "\n".join(claim.name for claim in CLAIMS)
    yield "claims/index", shown("claims.md", claims=told, toctree=toctree, summary=summary())
    for one in told:
        yield f"claims/{one['claim'].name}", shown("claim.md", c=one)


def _capacities(systems: Sequence[System]) -> Ready:
    rows = [(system, kept) for system in systems if (kept := capacity(system.spec)) is not None]
    rows.sort(key=lambda row: -row[1].get("held", -1))
    return render("capacity.html", rows=rows, dim=DIM, pairs=PAIRS)


def _guide(words: str, page: str, there: frozenset[str]) -> Ready:
    """Return a link to a guide; its words alone where there are no guides."""
    known = f"docs/{page}" in there
    return Ready(f"[{escaped(words)}](/docs/{page}.md)" if known else escaped(words))


def _link(name: str, names: frozenset[str]) -> Ready:
    """Return a link to a system's page; its name alone where it has none."""
    known = name in names
    return Ready(f"[{escaped(name)}](/systems/{name}.md)" if known else escaped(name))


def _system(system: System, drawn: Map, link: Any) -> dict[str, Any]:
    relations = [_relation(r, link) for r in drawn.near(system.name)]
    return {
        "s": system,
        "source": system.source,
        "use": USE.format(source=system.source),
        "relatives": relations,
        "audits": recorded.about(system.name),
        "results": measured(system.name, guides.ROOT / "docs"),
        "claims": [reproduced(claim, drawn=False) for claim in about(system.name)],
        "held": capacity(system.spec),
        "packaged": system.name == system.source,
    }


def _relation(relation: Relation, link: Any) -> Ready:
    """Return a relation's line with both of its systems linked."""
    rest = str(relation).removeprefix(relation.inner)
    words, _, tail = rest.partition(f" {relation.outer}")
    first, second = link(relation.inner), link(relation.outer)
    return Ready(f"{first} {escaped(words)} {second}{escaped(tail)}")


def _table(systems: Sequence[System]) -> str:
    kinds = sorted({system.derived["class"] for system in systems})
    count = Counter(system.paper for system in systems if system.paper)
    chosen = sorted(count, key=lambda paper: (-count[paper], paper))
    return render("table.html", systems=systems, kinds=kinds, papers=chosen)


def _judged(paper: Paper) -> dict[str, Any]:
    lines = [(line, recorded.verdict(paper, line)) for line in paper.equations]
    return {
        "paper": paper,
        "lines": lines,
        "counts": Counter(kept["verdict"] for _, kept in lines),
    }
