"""The documentation site: every page is reachable, loads nothing from the network, and opens in a real browser without an error."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.test_public_names import PUBLIC
from tools import docs_site

BROWSER = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None)
LOADING = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src", "object": "data"}


def places(part: object) -> Iterator[str]:
    """The pages of a part of the navigation."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, dict):
        yield from (place for each in part.values() for place in places(each))
    elif isinstance(part, list):
        yield from (place for each in part for place in places(each))


def test_navigation_lists_every_page_once() -> None:
    listed = list(places(docs_site.navigation(list(docs_site.api_pages()))))
    assert sorted(listed) == sorted({*listed})
    pages = {place for place in docs_site.staged().values() if place.endswith(".md")}
    assert set(listed) == pages | docs_site.api_pages().keys()


def test_every_exported_name_is_on_a_page_of_the_api() -> None:
    text = "".join(docs_site.api_pages().values())
    listed = [module for _, modules in docs_site.API_PAGES.values() for module in modules]
    assert sorted(listed) == sorted(PUBLIC)
    found = {module: [name for _, name in docs_site.exported(module)] for module in listed}
    assert {module: sorted(names) for module, names in found.items()} == {
        module: sorted(names.split()) for module, names in PUBLIC.items()
    }
    homes = [entry for module in listed for entry in docs_site.exported(module)]
    assert [name for home, name in homes if f"::: {home}.{name}\n" not in text] == []


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("```python hello.py\nx = 1\n```\n", '```python title="hello.py"\nx = 1\n```\n'),
        ("```console exit=2\n$ false\n```\n", "```console\n$ false\n```\n"),
        ("  ```sh no-run: it asks\n  $ true\n  ```\n", "  ```sh\n  $ true\n  ```\n"),
        ("[a](../learn/tutorial.md#x) `[b](c)`", "[a](../learn/tutorial.md#x) `[b](c)`"),
        ("[rules](../../CONTRIBUTING.md)", "[rules](../internals/contributing.md)"),
        ("[file](../../Makefile)", "file"),
    ],
)
def test_page_is_translated_for_the_generator(page: str, expected: str) -> None:
    assert docs_site.translated(page, "docs/how-to/approvals.md") == expected


class Page(HTMLParser):
    """The addresses that a page loads and links to, and the anchors that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads, self.links, self.anchors = list[str](), list[str](), set[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values.get("id", ""), values.get("name", "")}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if (address := values.get(LOADING.get(tag, ""))) is not None and values.get("rel") != "canonical":
            self.loads.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not docs_site.MKDOCS.exists():
        pytest.skip("the generator is not installed: `make site-environment`")
    built = tmp_path_factory.mktemp("site") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "tools.docs_site", built],
        cwd=docs_site.ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return built


@pytest.mark.more
@pytest.mark.proves("P-57")
@pytest.mark.timeout(300)
@pytest.mark.xdist_group("docs-site")
def test_site_loads_nothing_from_the_network_and_has_no_broken_link(site: Path) -> None:
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    for path, page in pages.items():
        assert [address for address in page.loads if urlsplit(address).netloc] == [], path
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.exists(), f"{path.relative_to(site)} links to {link}"
            if target in pages and parts.fragment:
                assert unquote(parts.fragment) in pages[target].anchors, f"{path.relative_to(site)} links to {link}"
    for file in (*site.rglob("*.js"), *site.rglob("*.css")):
        text = file.read_text(encoding="utf-8")
        assert (
            re.findall(r"unpkg\.com|jsdelivr\.net|googleapis\.com|@import\s+url\(['\"]?(?:https?:)?//", text) == []
        ), file
        assert re.findall(r"url\(['\"]?(?:https?:)?//[^)]*", text) == [], file


@pytest.mark.proves("P-57")
@pytest.mark.xdist_group("docs-site")
@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("pages", [
    pytest.param(("index.html", "contents.html", "learn/tutorial.html", "reference/api/models.html"), id="few", marks=[pytest.mark.more, pytest.mark.timeout(300)]),
    pytest.param(("**/*.html",), id="all", marks=[pytest.mark.long, pytest.mark.timeout(1200)]),
])  # fmt: skip
async def test_page_opens_in_a_browser_without_an_error(site: Path, tmp_path: Path, pages: tuple[str, ...]) -> None:
    found = dict[str, list[str]]()
    paths = [path for each in pages for path in sorted(set(site.glob(each)) - {site / "404.html"})]  # noqa: ASYNC240 - nothing else runs in this loop
    assert len(paths) >= len(pages)
    async with Browser(tmp_path) as browser:
        for path in paths:
            address = f"{path.as_uri()}?q=approval" if path.name == "contents.html" else path.as_uri()
            problems = await browser.open(address)
            if problems:
                found[path.relative_to(site).as_posix()] = problems
            if path.name == "contents.html":  # the search answers, though no server runs
                assert int(await browser.wait_for("document.querySelectorAll('.md-search-result__item').length")) > 0
    assert found == {}


class Browser:
    """A headless Chromium that is driven over its debugging pipe: one JSON object per message, ended by a zero byte."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._number, self._events = folder, 0, list[dict[str, Any]]()

    async def __aenter__(self) -> Browser:
        reads, self._write = os.pipe()
        self._read, writes = os.pipe()
        quiet = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-sync",
                 "--disable-component-update", "--host-resolver-rules=MAP * ~NOTFOUND"]  # fmt: skip
        command = [str(BROWSER), "--headless", "--no-sandbox", *quiet, "--remote-debugging-pipe",
                   f"--user-data-dir={self._folder / 'profile'}"]  # fmt: skip
        # the browser reads from descriptor 3 and writes to descriptor 4
        shell = f'exec 3<&{reads} 4>&{writes}; exec "$@"'
        self._process = await asyncio.create_subprocess_exec(
            "bash", "-c", shell, "browser", *command, pass_fds=[reads, writes], stderr=asyncio.subprocess.DEVNULL
        )
        os.close(reads)
        os.close(writes)
        self._reader = asyncio.StreamReader(limit=64 * 2**20)
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._reader), os.fdopen(self._read, "rb")
        )
        target = await self._call("Target.createTarget", url="about:blank")
        attached = await self._call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            await self._call(f"{domain}.enable")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._process.kill()
        await self._process.wait()
        os.close(self._write)

    async def open(self, address: str) -> list[str]:
        """Open a page and return its problems: errors, and requests for anything but files."""
        self._events.clear()
        await self._call("Page.navigate", url=address)
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._events.append(await self._message())
        await self.wait_for("document.readyState == 'complete' && document.body.innerText.length")
        return [text for event in self._events if (text := _problem(event))]

    async def wait_for(self, expression: str) -> str:
        """Evaluate an expression in the page until its value is true; return the value."""
        poll = f"new Promise(done => {{ const look = () => {{ const v = {expression}; v ? done(v) : requestAnimationFrame(look) }}; look() }})"
        async with asyncio.timeout(60):
            found = await self._call("Runtime.evaluate", expression=poll, awaitPromise=True, returnByValue=True)
        return str(found["result"].get("value"))

    async def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        session = {"sessionId": self._session} if hasattr(self, "_session") else {}
        os.write(
            self._write, json.dumps({"id": number, "method": method, "params": params, **session}).encode() + b"\0"
        )
        while True:
            message = await self._message()
            if message.get("id") == number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result
            self._events.append(message)

    async def _message(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads((await self._reader.readuntil(b"\0"))[:-1])
        return message


def _problem(event: dict[str, Any]) -> str:
    method, params = event.get("method"), event.get("params", {})
    if method == "Runtime.exceptionThrown":
        return json.dumps(params["exceptionDetails"])
    if method == "Log.entryAdded" and params["entry"]["level"] == "error":
        return f"{params['entry']['text']} {params['entry'].get('url', '')}"
    if method == "Network.requestWillBeSent":
        url: str = params["request"]["url"]
        return "" if url.startswith(("file:", "data:", "about:", "blob:")) else f"requests {url}"
    return ""
