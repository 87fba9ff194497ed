"""Runs a configuration file as the program that its framework executes."""

from __future__ import annotations

from tclint.source.recipes.reading import Recipe
from tclint.source.run.facts import Facts
from tclint.source.run.interpreter.machine import Machine
from tclint.source.run.library import library
from tclint.source.run.program import Program
from tclint.source.run.project import ProjectFiles
from tclint.source.run.values import Frame, FunctionValue
from tclint.source.syntax.tables import Call, Name


def program_of(recipe: Recipe, project: ProjectFiles) -> Program:
    """The program that trains with a configuration file, of which nothing else is known."""
    machine = Machine(project, library())
    file = recipe.file
    file.name = "__main__"
    machine.frames[file] = Frame(file, file.tables.module, None)
    summary = machine.summary(recipe.format.program)
    run = machine.frames[summary].names["run"]
    assert isinstance(run, FunctionValue)
    machine.frame = machine.frames[file]
    machine.node_id = recipe.place(recipe.format.anchor(recipe.chosen)).node_id
    given = [recipe.value_of(recipe.chosen), recipe.value_of(recipe.root)]
    machine.call_value(run, given, {}, Call(Name("run"), (), machine.node_id))
    facts = Facts(machine.record, machine.library)
    return Program(file, machine.record, facts, [file], frozenset((file.path,)), is_configuration=True)
