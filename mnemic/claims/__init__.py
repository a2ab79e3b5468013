"""Reproduce claims of papers: each claim is a function, its outcome has a verdict in words."""

from mnemic.claims.catalogue import CLAIMS as CLAIMS
from mnemic.claims.catalogue import about as about
from mnemic.claims.catalogue import find as find
from mnemic.claims.catalogue import names as names
from mnemic.claims.claim import Claim as Claim
from mnemic.claims.claim import reproduce as reproduce
from mnemic.claims.outcome import Outcome as Outcome
