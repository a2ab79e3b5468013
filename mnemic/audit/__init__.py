"""Equations as papers print them, judged against the problems that the papers state."""

from mnemic.audit.catalogue import papers as papers
from mnemic.audit.entry import Equation as Equation
from mnemic.audit.entry import Paper as Paper
from mnemic.audit.verdict import Verdict as Verdict
