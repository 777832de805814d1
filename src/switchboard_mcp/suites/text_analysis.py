"""Splits texts and tool names into words, and provides stemming, stop words and synonyms.

The language is English; scripts without spaces are split into pairs of characters. Not aware of what is searched.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

# Runs of capitals, capitalised or small words, numbers, and runs of any other letters.
WORD = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_A-Za-z]+"
# Longer than any word; an unbroken text would be indexed piece by piece.
MAX_WORD_CHARS = 64
# Filler words of requests and sentences, which do not distinguish tools.
STOP_WORDS = frozenset(
    "a about again all also am an and any are as at be been being both but by can could did do does doing don each few "
    "finally for from further give had has have he help her here him his how i if im in into is it its just know let "
    "like me more most my need no nor not now of off on once one only or other our out over own please same she should "
    "so some such tell than that the their them then there these they this those three to today too two under until up "
    "us use used using very via want was we what when where which while who whom why will with would you your".split()
)
# The longest matching suffix is removed if at least `SHORTEST_STEM` letters remain; "->" gives its replacement.
SHORTEST_STEM = 4
ENDINGS = tuple(
    tuple(rule.partition("->")[::2])
    for rule in (
        "ization->ize isation->ize ational->ate fulness iveness ically->ic ation->at ator->at ment ness able ible ance "
        "ence ical->ic ally ial ful ive ity ize ise ing ion er or ed al ly"
    ).split()
)
# Each line: words that tools and users use for nearly the same thing.
SYNONYMS = """
create make add new generate build produce
delete remove erase drop clear
get fetch retrieve read obtain load show view
search find lookup query discover locate
list enumerate browse
update edit modify change set alter
send post publish submit share
save write store export
run execute launch start invoke
stop end kill terminate cancel
convert transform translate
calculate compute count
analyze analyse examine inspect evaluate
summarize summary abstract digest
recommend suggest
compare diff difference
ask question
picture image photo screenshot
presentation ppt powerpoint pptx slide
document doc docx word
spreadsheet excel xlsx sheet
folder directory
website site webpage page web
repository repo
issue ticket bug
version release
database db sql
user account profile
email mail message
price cost quote
stock share equity ticker
currency exchange money
company firm
news headline
paper article publication
book novel
trend popular hot rank
weather forecast temperature
map location place address
route direction navigation
hotel accommodation lodging
train railway
flight airline
calendar date day
time clock hour
chart graph plot diagram
movie film
video clip
music audio song sound
recipe dish meal cook food
download fetch
"""


def words(text: str) -> list[str]:
    """Return the words of a text or of a camelCase, snake_case or kebab-case name, in lower case.

    Scripts without spaces yield pairs of adjacent characters.
    """
    found: list[str] = []
    for run in re.findall(WORD, text):
        if run[0] < "\u2e80" or len(run) < 2:
            found.append(run[:MAX_WORD_CHARS].lower())
        else:
            found.extend(run[place : place + 2] for place in range(len(run) - 1))
    return found


def stem(word: str) -> str:
    """Return the word without common English suffixes: `creates`, `creating` and `creation` have the same stem."""
    if len(word) < 4 or not word.isascii():
        return word
    if word.endswith("ies"):
        word = word[:-3] + "y"
    elif word[-1] == "s" and word[-2] not in "sui":
        word = word[:-1]
    for ending, instead in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= SHORTEST_STEM:
            word = word[: -len(ending)] + instead
            if word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    if word[-1] == "e" and len(word) > 3:
        return word[:-1]
    return word[:-1] + "i" if word[-1] == "y" and len(word) > SHORTEST_STEM else word


def meaningful(text: str) -> list[str]:
    """Return the words that are not stop words; all of them if there are no others."""
    all_words = words(text)
    return [word for word in all_words if word not in STOP_WORDS] or all_words


@cache
def synonyms() -> Mapping[str, frozenset[str]]:
    """Return the synonyms of each stem. Computed on first use."""
    related: dict[str, set[str]] = {}
    for line in SYNONYMS.split("\n"):
        stems = {stem(word) for word in line.split()}
        for one in stems:
            related.setdefault(one, set()).update(stems - {one})
    return {one: frozenset(others) for one, others in related.items()}
