"""Hides what looks like a password, a token or a key in the words and lines that a snapshot's page keeps. docs/LIVE.md lists what
looks so. It rather hides too much: the page is made to be sent to others."""
import re

HIDDEN = "***"
# Names of secrets, also as the end of a longer word (hftoken). A letter after them makes another word: tokenizer, authors.
_STRONG = (r"(?:token|secrets?|passwords?|passwd|passphrase|api[-_]?keys?|access[-_]?keys?|private[-_]?key|credentials?|authorization"
           r"|(?<![a-z])(?:auth|bearer|pwd))(?![a-z])")
# Names of secrets only as the last word of an option's name (--key, wandb.key), as they mean other things in texts.
_LAST = r"(?<![a-z])(?:key|keys|pw|pass|cookie)$"
_NAME = re.compile("%s|%s" % (_STRONG, _LAST), re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# A quote, also one that is escaped inside of another text.
_QUOTE = r"(?:\\{0,4}[\"'])"
_VALUE = r"(?:\\{0,4}\"(?:[^\"\\\n]|\\[^\"])*\\{0,4}\"?|\\{0,4}'(?:[^'\\\n]|\\[^'])*\\{0,4}'?|[^\s,;&\"'}\])\\]+)"
_SHAPES = (
    # A header, to the end of what quotes it.
    (re.compile(r"(?i)(?<![a-z])(authorization%s?[ \t]*[:=][ \t]*%s?)[^\"'\r\n\\]+" % (_QUOTE, _QUOTE)), r"\1" + HIDDEN),
    (re.compile(r"(?i)(?<![a-z])(bearer[ \t]+)[a-z0-9._~+/=-]{6,}"), r"\1" + HIDDEN),
    # NAME=VALUE, NAME: VALUE, "NAME": "VALUE" and ['NAME'] = 'VALUE'. A short number after a colon is a figure of a log.
    (re.compile(r"(?i)(%s%s?\]?[ \t]*(?:==?|=>|:(?![:/])(?![ \t]*[0-9.]{1,5}(?![\w.])))[ \t]*)%s" % (_STRONG, _QUOTE, _VALUE)),
     r"\1" + HIDDEN),
    (re.compile(r"(?i)(%s(?:key|pw|pass|cookie)%s[ \t]*:[ \t]*)%s" % (_QUOTE, _QUOTE, _VALUE)), r"\1" + HIDDEN),
    # --NAME VALUE inside of one text, as in a command that a log shows.
    (re.compile(r"(?i)((?<![\w-])--?(?:[a-z0-9]{1,30}[-_.]){0,6}(?:[a-z0-9]{0,20}%s|key|pw|pass)(?:[-_][a-z0-9]{1,30}){0,3}[ \t]+)"
                r"(?!--[a-z])%s" % (_STRONG, _VALUE)),
     r"\1" + HIDDEN),
    # A user and password, or a token, before the host of an address.
    (re.compile(r"(://)[^\s/@\"']{1,500}@"), r"\1" + HIDDEN + "@"),
    # Tokens that their first letters tell: Hugging Face, OpenAI and like it, GitHub, GitLab, Slack, AWS, Google, NVIDIA, PyPI, npm,
    # Groq, Replicate, W&B; then JSON web tokens and private keys.
    (re.compile(r"(?<![A-Za-z0-9_])(?:hf_(?=[a-z]{0,40}[A-Z0-9])[A-Za-z0-9]{8,}|sk-(?=[a-z_-]{0,40}[A-Z0-9])[A-Za-z0-9_-]{8,}"
                r"|gh[opsur]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|xox[abeoprs]-[\w-]{10,}|A[KS]IA[0-9A-Z]{16}|AIza[\w-]{35}|nvapi-[\w-]{16,}"
                r"|pypi-[\w-]{16,}|npm_[A-Za-z0-9]{30,}|gsk_[A-Za-z0-9]{20,}|r8_[A-Za-z0-9]{20,}|wandb_v1_\w{16,}"
                r"|eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]+)?)"), HIDDEN),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), HIDDEN),
)
# An option or a setting of a command line: --name=value, name=value, +group.name=value.
_SETTING = re.compile(r"([-+~]*[\w.@/\[\]-]{1,300}?)=(.*)", re.DOTALL)


def is_secret(name):
    """True if a variable or an option of this name holds a secret."""
    return _NAME.search(_CAMEL.sub("_", name)) is not None


def hidden(text):
    """A text with *** instead of what looks like a secret."""
    for shape, instead in _SHAPES:
        text = shape.sub(instead, text)
    return text


def hidden_words(words):
    """A command line with *** instead of what looks like a secret. The word after an option with a secret's name is its value,
    unless it is a long option itself."""
    shown, is_value = [], False
    for word in words:
        setting = _SETTING.fullmatch(word)
        name = setting.group(1) if setting else word
        if is_value and not re.match(r"--[A-Za-z]", word):
            shown.append(HIDDEN)
            is_value = False
            continue
        is_value = setting is None and name.startswith("-") and is_secret(name) and not re.search(r"\s", name)
        shown.append(name + "=" + HIDDEN if setting and is_secret(name) else hidden(word))
    return shown
