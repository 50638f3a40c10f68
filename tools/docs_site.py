"""Build the documentation site into build/site, from README.md, docs/ and the docstrings.

    make docs-site
    python -m tools.docs_site PLACE    build it in another folder

The pages are written for readers of the repository. This script stages a copy for the generator: it adds the pages of the Python API,
derives the navigation from docs/README.md, and translates fences and links. The generator fails on a broken link or anchor.
It runs in `.venv-site`, an environment of its own, so that the environment of the project stays small.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MKDOCS = ROOT / ".venv-site" / "bin" / "mkdocs"
# Pages outside of docs/, and their places on the site.
PLACES = {
    "README.md": "index.md",
    "docs/README.md": "contents.md",
    "CONTRIBUTING.md": "internals/contributing.md",
    "CHANGELOG.md": "reference/changelog.md",
    "model/README.md": "internals/model.md",
}
FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+)(?P<language>\w+) +(?P<note>.+)$", re.MULTILINE)
LINK = re.compile(r"`[^`\n]*`|(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)")
WORKER = "https://unpkg.com/iframe-worker/shim"
REMOTE = re.compile(r"https://unpkg\.com/[\w@./-]*")
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
# The pages of the Python API, each with its modules. A module is public if it has `__all__`.
API_PAGES = {
    "applications": ("Applications and agents", ("heliograph", "heliograph.agents", "heliograph.phases", "heliograph.config", "heliograph.types")),
    "running": ("Clients, memories and webhooks", ("heliograph.client", "heliograph.memory", "heliograph.webhooks")),
    "models": ("Models and tools", ("heliograph.models", "heliograph.tools")),
    "targets": ("Signals and their targets", ("heliograph.signals", "heliograph.adapters", "heliograph.gateway", "heliograph.signal_handlers")),
    "control": ("Control signals and manifests", ("heliograph.control", "heliograph.manifest", "heliograph.trace_context")),
    "testing": ("Testing and recordings", ("heliograph.testing", "heliograph.recording", "heliograph.playback")),
    "errors": ("Errors", ("heliograph.errors",)),
}  # fmt: skip


def main() -> int:
    site = Path(sys.argv[1] if sys.argv[1:] else ROOT / "build" / "site").resolve()
    stage = site.parent / "site-stage"
    shutil.rmtree(stage, ignore_errors=True)
    pages = stage / "pages"
    for source, place in staged().items():
        (pages / place).parent.mkdir(parents=True, exist_ok=True)
        if source.endswith(".md"):
            text = (ROOT / source).read_text(encoding="utf-8")
            (pages / place).write_text(translated(text, source), encoding="utf-8")
        else:
            shutil.copyfile(ROOT / source, pages / place)
    api = api_pages()
    for name, text in api.items():
        (pages / name).parent.mkdir(parents=True, exist_ok=True)
        (pages / name).write_text(text, encoding="utf-8")
    settings = {
        "INHERIT": str(ROOT / "site" / "mkdocs.yml"), "docs_dir": str(pages), "site_dir": str(site), "nav": navigation(list(api)),
        "plugins": {"mkdocstrings": {"handlers": {"python": {"paths": [str(ROOT / "src")], "options": {"extensions": [str(ROOT / "site" / "docstrings.py")]}}}}},
    }  # fmt: skip
    (stage / "mkdocs.yml").write_text(json.dumps(settings), encoding="utf-8")  # JSON is YAML
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "true", "DISABLE_MKDOCS_2_WARNING": "true"}
    command = [str(MKDOCS), "build", "--quiet", "--strict", "--config-file", str(stage / "mkdocs.yml")]
    ended = subprocess.run(command, check=False, env=environment).returncode
    shutil.rmtree(stage)
    if ended == 0:
        detach(site)
        print(f"Open {site / 'index.html'} in a browser; it needs no server and no network.")
    return ended


def detach(site: Path) -> None:
    """Replace the addresses from which the theme could load scripts: one by our own script, the others by nothing."""
    shutil.copyfile(ROOT / "site" / "search_worker.js", site / "assets" / "javascripts" / "search_worker.js")
    for page in site.rglob("*.html"):
        top = "/".join([".."] * (len(page.relative_to(site).parts) - 1)) or "."
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace(WORKER, f"{top}/assets/javascripts/search_worker.js"), encoding="utf-8")
    for script in (site / "assets" / "javascripts").rglob("*.js"):
        text = script.read_text(encoding="utf-8")
        script.write_text(REMOTE.sub("data:,", text), encoding="utf-8")


def staged() -> dict[str, str]:
    """Return the place on the site of each file of the documentation, by its path in the repository."""
    files = [path for path in sorted((ROOT / "docs").rglob("*")) if path.suffix in (".md", ".svg")]
    names = [path.relative_to(ROOT).as_posix() for path in files]
    return {name: PLACES.get(name, name.removeprefix("docs/")) for name in [*PLACES, *names]}


def translated(text: str, source: str) -> str:
    """Return a page for the generator: its fences without the notes for the tests, its links between places of the site."""
    parts = re.split(r"(^ *```.*?^ *```+ *$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(FENCE.sub(_fence, part) if index % 2 else _links(part, source) for index, part in enumerate(parts))


def _fence(found: re.Match[str]) -> str:
    name = re.match(r"[\w./-]+\.\w+", found["note"])
    title = f' title="{name[0]}"' if name else ""
    return f"{found['indent']}{found['ticks']}{found['language']}{title}"


def _links(text: str, source: str) -> str:
    places, here = staged(), Path(PLACES.get(source, source.removeprefix("docs/"))).parent

    def link(found: re.Match[str]) -> str:
        if found["target"] is None:  # code, not a link
            return found[0]
        path, _, anchor = found["target"].partition("#")
        if not path or "://" in path:
            return found[0]
        target = os.path.normpath(Path(source).parent / path)
        if target not in places:  # a file of the repository that is no page
            return found["text"]
        place = os.path.relpath(places[target], here)
        return f"{found['image']}[{found['text']}]({place}{'#' if anchor else ''}{anchor})"

    return LINK.sub(link, text)


def api_pages() -> dict[str, str]:
    """Return the pages of the Python API, by their place: the names of each public module, from their docstrings."""
    return {
        f"reference/api/{page}.md": f"# {title}\n\n" + "".join(_module_section(module) for module in modules)
        for page, (title, modules) in API_PAGES.items()
    }


def _module_section(module: str) -> str:
    entries = "".join(f"::: {home}.{name}\n\n" for home, name in exported(module))
    return f"## {module}\n\nImport these names from `{module}`.\n\n{entries}"


def exported(module: str) -> Iterator[tuple[str, str]]:
    """Yield the home and the name of everything that a public module exports, in the order of its source."""
    path = ROOT.joinpath("src", *module.split("."))
    tree = ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8"))
    homes: dict[str, str] = {}
    listed: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("heliograph."):
            homes |= dict.fromkeys((each.name for each in node.names), node.module)
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            listed = ast.literal_eval(node.value)
    yield from ((homes.get(name, module), name) for name in sorted(listed, key=[*homes, *listed].index))


def navigation(api: list[str]) -> list[object]:
    """Return the navigation: the sections of docs/README.md with their pages in its order, and what only folders list."""
    text = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    listed: list[object] = [{"Home": ["index.md", "contents.md"]}]
    titles = SECTION.split(text)[1:]
    for title, body in zip(titles[::2], titles[1::2], strict=True):
        found = list(dict.fromkeys(_pages_of(body)))
        section: list[object] = [
            place for place in found if "/decisions/" not in f"/{place}" and "conformance/" not in place
        ]
        if title == "Reference":
            section += [{"Python API": list(api)}, "reference/changelog.md"]
        if title == "Internals":
            section += [{"Conformance": _folder("internals/conformance")}, {"Decisions": _folder("decisions")}]
        listed.append({title: section})
    return listed


def _pages_of(body: str) -> Iterator[str]:
    places = staged()
    for found in LINK.finditer(body):
        if found["target"] is None:
            continue
        target = os.path.normpath(Path("docs") / found["target"].partition("#")[0])
        if target in places:
            yield places[target]


def _folder(place: str) -> list[object]:
    """Return the pages of a folder of docs/, its README first."""
    names = sorted(path.name for path in (ROOT / "docs" / place).glob("*.md"))
    return [f"{place}/{name}" for name in sorted(names, key=lambda name: (name != "README.md", name))]


if __name__ == "__main__":
    sys.exit(main())
