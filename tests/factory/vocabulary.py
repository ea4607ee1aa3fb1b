"""Small vocabularies of the three kinds that matter: any text tokenizes with each of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from gguf import GGUFWriter, TokenType

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_WORDS = """
the of and to in is that it was for on are as with his they at be this from have or by one had not but what all were
when we there can an your which their said if do will each about how up out them then she many some so these would
other into has more her two like him see time could no make than first been its who now people my made over did down
only way find use may water long little very after words called just where most know get through back much before go
good new write our used me man too any day same right look think also around another came come work three word must
because does part even place well such here take why things help put years different away again off went old number
great tell men say small every found still between name should home big give air line set own under read last never us
left end along while might next sound below saw something thought both few those always looked show large often together
asked house world going want capital France Paris hello Hello Hi The It I A You model answer question text token
""".split()

CONTROL_TOKENS = ("<|im_start|>", "<|im_end|>")


@dataclass
class Vocabulary:
    """Tokens with their kinds; `text_tokens` are those whose text is plain, so that generation reads well."""

    model: str
    tokens: list[bytes] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    kinds: list[TokenType] = field(default_factory=list)
    merges: list[str] = field(default_factory=list)
    text_tokens: list[int] = field(default_factory=list)
    bos: int = 1
    eos: int = 2
    pre: str = ""
    add_bos: bool = True
    special: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, token: str, kind: TokenType = TokenType.NORMAL, score: float = 0.0, *, plain: bool = False) -> int:
        self.tokens.append(token.encode())
        self.kinds.append(kind)
        self.scores.append(score)
        if plain:
            self.text_tokens.append(len(self.tokens) - 1)
        return len(self.tokens) - 1

    def write(self, writer: GGUFWriter) -> None:
        """Put the tokenizer's keys into a file."""
        writer.add_tokenizer_model(self.model)
        if self.pre:
            writer.add_tokenizer_pre(self.pre)
        writer.add_token_list(self.tokens)
        writer.add_token_types(self.kinds)
        if self.model != "gpt2":
            writer.add_token_scores(self.scores)
        else:
            writer.add_token_merges(self.merges)
        writer.add_bos_token_id(self.bos)
        writer.add_eos_token_id(self.eos)
        writer.add_add_bos_token(self.add_bos)
        for name, token in self.special.items():
            getattr(writer, f"add_{name}_token_id")(token)


def _prefixes(words: Iterable[str], lead: str) -> list[str]:
    """Every beginning of every word, shortest first: merges build a word from the left."""
    seen: dict[str, None] = {}
    for word in words:
        whole = lead + word
        for end in range(2, len(whole) + 1):
            seen.setdefault(whole[:end])
    return sorted(seen, key=len)


def sentence_piece_vocabulary(*, control_tokens: tuple[str, ...] = CONTROL_TOKENS) -> Vocabulary:
    """As Llama 2 has it: pieces with scores, and one token for every byte."""
    vocabulary = Vocabulary("llama")
    vocabulary.add("<unk>", TokenType.UNKNOWN)
    vocabulary.add("<s>", TokenType.CONTROL)
    vocabulary.add("</s>", TokenType.CONTROL)
    for token in control_tokens:
        vocabulary.add(token, TokenType.CONTROL)
    for byte in range(256):
        vocabulary.add(f"<0x{byte:02X}>", TokenType.BYTE, plain=byte == 10)
    for position, piece in enumerate(_prefixes(_WORDS, "▁")):
        vocabulary.add(piece, score=-float(position), plain=True)
    for position, character in enumerate(["▁", *map(chr, range(33, 127))]):
        vocabulary.add(character, score=-10_000.0 - position, plain=True)
    vocabulary.special["unk"] = 0
    if "<|im_end|>" in control_tokens:
        vocabulary.special["eot"] = 3 + control_tokens.index("<|im_end|>")
    return vocabulary


def byte_characters() -> list[str]:
    """The character that stands for each byte in a byte-level vocabulary, as GPT-2 chose them."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]


def byte_pair_vocabulary(*, control_tokens: tuple[str, ...] = CONTROL_TOKENS) -> Vocabulary:
    """As GPT-2, Llama 3 and Qwen have it: byte-level pieces with merges."""
    vocabulary = Vocabulary("gpt2", pre="gpt-2", add_bos=False)
    vocabulary.add("<|endoftext|>", TokenType.CONTROL)
    for token in control_tokens:
        vocabulary.add(token, TokenType.CONTROL)
    vocabulary.bos = 0
    vocabulary.eos = 1 + control_tokens.index("<|im_end|>") if "<|im_end|>" in control_tokens else 0
    for byte, character in enumerate(byte_characters()):
        vocabulary.add(character, plain=32 <= byte < 127 or byte == 10)
    for piece in dict.fromkeys((*_prefixes(_WORDS, "Ġ"), *_prefixes(_WORDS, ""))):
        vocabulary.add(piece, plain=True)
        vocabulary.merges.append(f"{piece[:-1]} {piece[-1]}")
    return vocabulary


def word_piece_vocabulary() -> Vocabulary:
    """As BERT has it: whole words behind a phantom space, and characters to spell the rest."""
    vocabulary = Vocabulary("bert", bos=2, eos=3)
    for token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"):
        vocabulary.add(token, TokenType.CONTROL)
    vocabulary.special.update(pad=0, unk=1, sep=3, mask=4)
    for character in map(chr, range(33, 127)):
        if not character.isupper():
            vocabulary.add("▁" + character)
            vocabulary.add(character)
    for word in dict.fromkeys(word.lower() for word in _WORDS if len(word) > 1):
        vocabulary.add("▁" + word)
    return vocabulary
