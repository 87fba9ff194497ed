"""What starts a program says of it: options of its command line, and configuration files that it names."""

from __future__ import annotations

import ast
import os
from collections.abc import Collection

from tclint.source.project.launchers import Launch, Passed
from tclint.source.project.requirements import may_run
from tclint.source.run.files import File
from tclint.source.run.interpreter.composed import Composer, merge, one_of, override, resolve
from tclint.source.run.interpreter.loading import Loading
from tclint.source.run.values import (
    FALSE,
    NONE,
    TRUE,
    Constant,
    Place,
    Setting,
    Symbol,
    Thing,
    Value,
    duplicate,
    either,
    options_of,
)
from tclint.source.syntax.positions import Span

_COMMAND_LINE = Constant("command line")
_ALL_WORDS = Symbol("sys.argv")
_FEWEST_KEYS = 2
"""A file of which a program reads fewer may be anything."""
_LONGEST_WAY = 5
"""The most calls and operators between a value and the name of a file at the end of its path."""
_TAKE_TEXT = (NONE, Constant("store"))
_FLAGS = {"store_true": TRUE, "store_false": FALSE}
_WORDS = {"true": True, "false": False, "yes": True, "no": False, "none": None, "null": None}


class Launched(Loading):
    """Gives programs what the commands that start them pass."""

    def loaded(self, name: Value, otherwise: Value) -> Value:
        """What the configuration file of a name holds; what may be another file may hold something else."""
        place = next((place for place in reversed(self.stack) if not place.file.is_library), None)
        file = place.file if place is not None else None
        if isinstance(name, Thing) and name.kind == "file":
            name = name.fields.get("file", NONE)
        names = [text for option, _ in options_of(name) for text in self._named_by(option)]
        texts = [text for text in names if text is not None]
        read = (self.project.settings(file, text) for text in texts if file is not None)
        found = next((settings for settings in read if settings is not None), None)
        if otherwise == NONE:
            return found if found is not None and len(names) == 1 else NONE
        if found is not None or place is None:
            return found or self.chosen_outside(otherwise)
        if place in self.settled:
            return self.settled[place]
        stands = self.chosen_outside(otherwise)
        if not texts and self._is_passed(name):
            self.unnamed[place] = stands
        return stands

    def _is_passed(self, value: Value, depth: int = _LONGEST_WAY) -> bool:
        """Whether the command line decides what a value is."""
        for option, _ in options_of(value):
            if option == _ALL_WORDS:
                return True
            if not isinstance(option, Thing) or depth == 0:
                continue
            parts = [
                *(option.operation[1] if option.operation is not None else ()),
                *(option.made.inputs if option.made is not None else ()),
            ]
            if option.fields.get("@chosen by") == _COMMAND_LINE or any(
                self._is_passed(part, depth - 1) for part in parts
            ):
                return True
        return False

    def settle(self) -> dict[Place, Value]:
        """What configuration files hold that only the command line names: one of those files of the project
        which have all keys at the top that the program reads is meant."""
        found = {}
        for place, stands in self.unnamed.items():
            keys = {
                operands[1].value
                for operator, operands in self._operations
                if operator in ("[]", ".") and operands[0] is stands and isinstance(operands[1], Constant)
            }
            names = [key for key in keys if isinstance(key, str)]
            held = self.project.holding(self._script(), names) if len(names) >= _FEWEST_KEYS else []
            if held:
                found[place] = one_of(held)
        return found

    def literal(self, text: Value) -> Value:
        """What a text says in Python; the text itself where it is no literal, as programs then keep it."""
        written = self.text_of(text)
        if written is None:
            return self.unknown()
        try:
            return self._held(ast.literal_eval(written))
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return text

    def _held(self, value: object) -> Value:
        """A value of Python as one of a program."""
        if isinstance(value, list | tuple):
            return self.container(type(value).__name__, [self._held(item) for item in value])
        if isinstance(value, dict):
            made = self.container("dict")
            for key, item in value.items():
                self.set_item(made, Constant(key), self._held(item))
            return made
        return Constant(value)

    def _named_by(self, value: Value, depth: int = _LONGEST_WAY) -> list[str | None]:
        """The names of the file that a value is, or else what is known of the end of its path."""
        if self.text_of(value) is not None or not isinstance(value, Thing) or depth == 0:
            return [self.text_of(value)]
        made = value.made
        parts = [*(value.operation[1] if value.operation is not None else ())]
        if made is not None:
            parts = [*([made.subject] if made.subject is not None else []), *made.arguments.values()]
        for part in parts[::-1] if value.operation is not None else parts[:1]:
            names = [name for one, _ in options_of(part) for name in self._named_by(one, depth - 1)]
            if any(name is not None for name in names):
                return names
        return [None]

    def launched(self, tool: Value, option: Value, file_option: Value) -> Value:
        """What the commands by which scripts of the project start the program pass for an option of a tool,
        or by the file that another of its options names. Without such a command nothing need be passed."""
        words, name, file_name = (self.text_of(item) or "" for item in (tool, option, file_option))
        otherwise = self.chosen_outside(tool)
        found: list[Value | None] = []
        for launch in self._launches():
            if launch.uses(words):
                given, file = launch.option_of(words, name), launch.option_of(words, file_name)
                settings = self.project.settings(self._script(), file) if file is not None else None
                said = settings.fields.get(("item", name)) if isinstance(settings, Thing) else None
                found.append(Constant(given) if given is not None else said)
        if not found:
            otherwise.fields["@option"] = Constant(f"--{name} of {words}")
            return either(NONE, otherwise)
        return found[0] if len(set(found)) == 1 and found[0] is not None else otherwise

    def passed(self, flags: Value, options: Value, otherwise: Value, kind: Value) -> Value:
        """What those commands pass for an option that argparse or click adds with some flags and options.

        Args:
            kind: the type of one that states none; None: what its text looks like.
        """
        names = {self.text_of(item) for item in self.exact_items(flags) or ()} - {None}
        known = self.exact_items(options)
        if known is None:
            return otherwise
        given = {str(self.text_of(key)): self.item(options, key) for key in known}
        action = given.get("action", NONE)
        flag = _FLAGS.get(str(self.text_of(action)), given.get("const", NONE))
        flag = TRUE if given.get("is_flag") == TRUE else flag
        takes_text = action in _TAKE_TEXT and given.get("is_flag") != TRUE
        if given.get("nargs", NONE) not in (NONE, Constant("?")) or not (takes_text or flag != NONE):
            return otherwise
        kind = given.get("type", kind)
        said = _agreed(self._passed_by(self._launches(), names, kind, flag, otherwise, takes_text), otherwise)
        if said is not otherwise or not takes_text or given.get("default", NONE) != NONE:
            return said
        # An option without a default that all commands pass which pages show is meant to be passed.
        pages = self.project.launches_of(self._script(), on_pages=True) if self.launches is not None else []
        shown = self._passed_by(pages, names, kind, flag, None, takes_text)
        known = [value for value in shown if value is not None]
        if not known or len(known) < len(shown):
            return otherwise
        is_required = given.get("required") == TRUE
        return either(
            *dict.fromkeys(known),
            *(way.value for way in options_of(otherwise) if not is_required or way.value != NONE),
        )

    def _passed_by(
        self,
        launches: list[Launch],
        names: Collection[str | None],
        kind: Value,
        flag: Value,
        otherwise: Value | None,
        takes_text: bool,
    ) -> list[Value | None]:
        """What each of some commands passes for an option; None for what is not known."""
        found: list[Value | None] = []
        for launch in launches:
            passed = next((item for item in reversed(launch.options) if item.name in names), None)
            if passed is None:
                found.append(None if launch.is_open else otherwise)
            elif passed.text is None or not takes_text:
                found.append(self._said(launch, passed, flag))
            elif passed.is_known:
                text = Constant(_literal(passed.text) if kind == NONE else passed.text)
                value = text if kind == NONE else self.call_value(kind, [text], {})
                found.append(self._said(launch, passed, value))
            else:
                found.append(None)
        return found

    def opened(self, cls: Value, by: Value, file_option: Value = NONE) -> Value:
        """An object of a class whose fields are options of the command line, or of the file that one of these
        names; what no command passes may be anything, but where such a file leaves it out."""
        otherwise, file_name = self.chosen_outside(by), self.text_of(file_option)
        found: list[tuple[Launch, dict[str, Value | None], bool]] = []
        for launch in self._launches():
            values: dict[str, Value | None] = {}
            is_all = False
            for passed in launch.options:
                name = passed.name.lstrip("-").replace("-", "_")
                if name == file_name and passed.text is not None:
                    settings = self.project.settings(self._script(), passed.text)
                    if isinstance(settings, Thing) and settings.kind == "dict":
                        file = {
                            key[1]: item for key, item in settings.fields.items() if isinstance(key, tuple)
                        }
                        values, is_all = {**file, **values}, not launch.is_open
                    continue
                text = _literal(passed.text) if passed.text is not None else True
                values[name] = self._said(launch, passed, Constant(text)) if passed.is_known else None
            found.append((launch, values, is_all))
        names = dict.fromkeys(name for _, values, _ in found for name in values)
        keywords = {}
        for name in names:
            said = [values.get(name, None if launch.is_open else otherwise) for launch, values, _ in found]
            keywords[name] = _agreed(said, otherwise)
        if not found or not all(is_all and len(values) == len(names) for _, values, is_all in found):
            keywords["**"] = otherwise
        return self.call_value(cls, [], keywords)

    def arguments(self) -> Value | None:
        """`sys.argv`, where all commands that start the program are alike."""
        launches = self._launches()
        texts = {tuple(word.text for word in launch.words) for launch in launches}
        if len(texts) != 1 or any(launch.is_open for launch in launches):
            return None
        items = [
            self._at(launches[0], word.span, word.text) if word.is_known else self.chosen_outside(NONE)
            for word in launches[0].words
        ]
        return self.container("list", [Constant(self._script().path), *items])

    # -- Hydra

    def composed(self, folder: Value, name: Value) -> Value:
        """What Hydra puts together from the files of a folder beside the file that asks for it, with what
        commands override; what is not known is chosen outside."""
        otherwise = self.chosen_outside(Constant("a file"))
        file = next((place.file for place in reversed(self.stack) if not place.file.is_library), None)
        where, what = self.text_of(folder), self.text_of(name)
        if file is None or where is None or what is None:
            return otherwise
        composer = Composer(
            os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(file.path)), where)),
            lambda path: self.project.settings(file, path),
            lambda path: self.project.data(path) or b"",
            lambda: self.chosen_outside(Constant("a file")),
        )
        given = self._overrides()
        for key, value in given.items():
            if composer.is_group(key):
                composer.chosen[key] = value
        found = composer.compose(what)
        if found is None:
            return otherwise
        for key, value in given.items():
            if not composer.is_group(key):
                override(found, key, value)
        return resolve(found)

    def _overrides(self) -> dict[str, Value]:
        """What commands set by `key=value`; not known where they differ."""
        found: list[dict[str, Value]] = []
        for launch in self._launches():
            values: dict[str, Value] = {}
            for word in launch.words:
                name, is_there, text = word.text.lstrip("+").partition("=")
                if is_there and not name.startswith("-") and word.is_known and not set(",()[]{}") & set(text):
                    values[name] = self._at(launch, word.span, _literal(text))
                elif is_there:
                    values[name] = self.chosen_outside(_COMMAND_LINE)
            found.append(values)
        outside = self.chosen_outside(_COMMAND_LINE)
        names = dict.fromkeys(name for values in found for name in values)
        return {
            name: found[0][name] if len({values.get(name) for values in found}) == 1 else outside
            for name in names
        }

    def instantiated(self, config: Value, options: Value) -> Value:
        """What `hydra.utils.instantiate` makes: what `_target_` names, of the other keys."""
        if not isinstance(config, Thing) or config.kind != "dict":
            return self.unknown("instantiate")
        given = {key[1]: item for key, item in config.fields.items() if isinstance(key, tuple)}
        if isinstance(options, Thing):
            given |= {key[1]: item for key, item in options.fields.items() if isinstance(key, tuple)}
        target = self.text_of(given.get("_target_"))
        if target is None:
            return config
        keywords = {key: self._inside(item) for key, item in given.items() if not str(key).startswith("_")}
        made = self.import_(self._script(), target)
        if given.get("_partial_") == TRUE:
            return self.call_value(Symbol("functools.partial"), [made], keywords)
        return self.call_value(made, [], keywords)

    def _inside(self, value: Value) -> Value:
        is_made = isinstance(value, Thing) and value.kind == "dict" and ("item", "_target_") in value.fields
        return self.instantiated(value, NONE) if is_made else value

    def allowed(self, package: Value, version: Value) -> Value:
        """Whether the requirements of the project that runs allow a release of a package or a newer one."""
        name, text = self.text_of(package), self.text_of(version)
        assert name is not None
        assert text is not None
        return Constant(may_run(self._script().path, tuple(map(int, text.split("."))), name))

    def merged(self, configs: list[Value]) -> Value:
        """One configuration of several, of which the later ones win; what the command line adds is left out,
        as by default it adds nothing."""
        found = self.container("dict")
        for config in configs:
            if isinstance(config, Thing) and config.kind == "dict":
                merge(found, duplicate(config, None))
            elif not (isinstance(config, Thing) and config.fields.get("@chosen by") == _COMMAND_LINE):
                return self.unknown("configuration")
        return found

    # -- commands

    def _script(self) -> File:
        return next(file for file in self.frames if not file.is_library)

    def _launches(self) -> list[Launch]:
        if self.launches is None:
            return []
        self.launches = self.project.launches_of(self._script())
        return self.launches

    def _said(self, launch: Launch, passed: Passed, value: Value) -> Value:
        """A value that knows the command that passes it."""
        return self._at(launch, passed.span, value.value) if isinstance(value, Constant) else value

    def _at(self, launch: Launch, span: Span, value: object) -> Setting:
        return Setting(value, self.project.place_in(launch.path, span))


def _agreed(found: list[Value | None], otherwise: Value) -> Value:
    """The one value that all commands pass, or those that they choose from; None among them: one of them
    passes what is not known."""
    if not found or None in found or all(item is otherwise for item in found):
        return otherwise
    distinct = dict.fromkeys(item for item in found if item is not None)
    return next(iter(distinct)) if len(distinct) == 1 else either(*distinct, otherwise)


def _literal(text: str) -> object:
    """What a text stands for where the type of an option is not seen."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
