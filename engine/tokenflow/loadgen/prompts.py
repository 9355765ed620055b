"""Seeded prompts: short requests as people type them, made from topics and forms that are written here, and text of
about any length."""

import random

_TOPICS = (
    "how a bicycle stays upright",
    "why bread rises",
    "the water cycle in a small valley",
    "how a lighthouse keeper spends a winter night",
    "what a compiler does with a loop",
    "the history of the printing press",
    "how to repot a houseplant",
    "why the sky turns red at sunset",
    "how tides depend on the moon",
    "planning a week of simple dinners",
    "how bees find their way home",
    "what makes a bridge strong",
    "how to prepare for a long hike",
    "why we have leap years",
    "how a violin makes its sound",
    "the difference between weather and climate",
    "how a library sorts its books",
    "what happens when coffee is roasted",
    "how to read a train timetable",
    "why old maps show sea monsters",
    "how glass is made",
    "the life of a river from spring to sea",
    "how a seed knows which way is up",
    "what a good night's sleep does for memory",
    "how to learn a few words of a new language",
    "why cats purr",
    "how a mechanical clock keeps time",
    "what to see in a town with one free afternoon",
    "how vaccines teach the body",
    "why ice floats",
    "how to take a clear photograph at dusk",
    "the rules of a simple card game",
    "how sound travels under water",
    "what a lighthouse, a radio and a star have in common",
    "how to write a letter of thanks",
    "why leaves change colour in autumn",
)
_FORMS = (
    "Explain {topic} to a curious beginner.",
    "Write a short essay about {topic}.",
    "Tell me about {topic}, step by step.",
    "I am preparing a talk about {topic}. Draft the opening.",
    "Describe {topic} with an example from daily life.",
    "Summarise what one should know about {topic}.",
)


def draw_prompts(count: int, rng: random.Random) -> list[str]:
    """`count` prompts. No prompt comes twice until every combination of topic and form has been used."""
    combinations = [form.format(topic=topic) for topic in _TOPICS for form in _FORMS]
    prompts: list[str] = []
    while len(prompts) < count:
        rng.shuffle(combinations)
        prompts.extend(combinations[: count - len(prompts)])
    return prompts


def draw_prompt_of(tokens: int, rng: random.Random) -> str:
    """About `tokens` tokens of running words: a common English word is one token in most vocabularies.

    No two share a beginning, so that no prefix is found in a cache. What a server counted is in the results.
    """
    return " ".join(rng.choices(_WORDS, k=tokens))


_WORDS = tuple(sorted({word for topic in _TOPICS for word in topic.replace(",", "").replace("'s", "").split()}))
