"""The word lists behind the critics' rules. All are English, but for a few abbreviations."""

from __future__ import annotations


def _listed(text: str) -> frozenset[str]:
    return frozenset(text.split())


ABBREVIATIONS = _listed(
    """e.g i.e eg ie cf ca vs viz approx resp incl excl dr mr mrs ms prof st fig figs eq eqs sec secs ch chap vol vols
    pp ed eds dept bzw z.b d.h u.a usw"""
)
"""A full stop after one of these ends no sentence."""

MAY_END = _listed("inc ltd co corp etc al jr sr")
"""Abbreviations that often stand last: after them a capital opens a sentence."""

NUMBERED = _listed("no nos art p v ver jan feb mar apr jun jul aug sep sept oct nov dec")
"""Short for something counted, but only before its number: `no. 5`; the answer may also be no."""

ENGLISH_ONLY = _listed(
    """the and to that for it with be are or not by this from at which have but its they we you if when will can there
    their your what would does how these than into only been were"""
)
"""Common in any English text and in no neighbour's: "in", "is", "was" and "of" are Dutch or German as well."""

STOP_WORDS = ENGLISH_ONLY | _listed(
    """a an in on of is was as no all has i he she his her our my me us them who whom whose where why do did done
    doing had having being am could should may might must shall then so too very just also even still more most much
    many some any each every both few other another such same own those here onto over under about above below
    between through during before after again once out up down off because while until since though although however
    either neither nor per via yet ever never always often one two three four five first second last next new make
    makes made use used uses using get gets got take takes need needs want like well way thing things without within
    against across along around whether upon it's don't doesn't isn't can't won't you're that's let see set"""
)
"""Words that carry the grammar rather than the matter; repeating them says nothing."""

DOUBLES_ALLOWED = _listed("that had very really bye ha blah knock there yes no")
"""Words that are said twice on purpose, or twice by grammar: "all that that had had"."""

IRREGULAR_PARTICIPLES = _listed(
    """beaten become begun bent bet bound broken brought built bought caught chosen cut dealt done drawn driven eaten
    fallen fed felt fought found forgotten forbidden frozen given gone grown held hidden hit hurt kept known laid led
    left lent lost made meant met overridden overwritten paid put read rebuilt rewritten run said seen sent set shown
    shut sold spent split spoken spread stolen stuck taken taught thought thrown told torn understood undone withdrawn
    won worn written"""
)

ADJECTIVES_LIKE_PARTICIPLES = _listed(
    """advanced aged allowed_to beloved bored complicated concerned dedicated detailed distributed embedded excited
    experienced finished indeed interested limited married naked nested needed opinionated outdated pleased red
    related sacred scared shared supposed surprised tired tried unchanged unfinished unlimited unused wicked worried"""
)
"""Words in -ed that after "is" name a state more often than something done."""
