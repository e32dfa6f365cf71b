"""A token counter that a reader can follow: one token a word."""


class WordCounter:
    name = "words"

    def count(self, text: str) -> int:
        return len(text.split())


class CharCounter:
    name = "characters"

    def count(self, text: str) -> int:
        return len(text)
