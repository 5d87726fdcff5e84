"""What README.md and docs/ show is run here: every `$ deploykit …` line of a ```console block."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)(?:#[^)]*)?\)")
EXIT_CODE = re.compile(r"\s+# exits (\d)\s*$")


def commands(page: Path) -> list[str]:
    """The `$ …` lines of a page, continuation lines joined."""
    lines: list[str] = []
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        joined = block.replace("\\\n", " ")
        lines += [line[2:].strip() for line in joined.splitlines() if line.startswith("$ ")]
    return lines


# The generated reference shows usage lines, not commands.
PAGES_WITH_COMMANDS = [page for page in PAGES if page.name != "cli.md" and commands(page)]


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like the `photos/` that the pages speak of."""
    import skimage
    import skimage.data
    import skimage.io

    folder = tmp_path_factory.mktemp("photos")
    for name in ("astronaut", "chelsea", "coffee", "rocket"):
        skimage.io.imsave(folder / f"{name}.png", getattr(skimage.data, name)(), check_contrast=False)
    return folder


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages export the same models: do that work once."""
    return tmp_path_factory.mktemp("cache") / "deploykit"


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_of_a_page_runs(page: Path, photos: Path, shared_cache: Path, tmp_path: Path) -> None:
    shutil.copytree(photos, tmp_path / "photos")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "DEPLOYKIT_CACHE_DIR": str(shared_cache), "COLUMNS": "100"}
    for line in commands(page):
        expected = int(code[1]) if (code := EXIT_CODE.search(line)) else 0
        words = shlex.split(EXIT_CODE.sub("", line), comments=True)
        assert words[0] in {"deploykit", "scripts/quickstart", "scripts/test"}, f"{page}: {line}"
        if words[0] != "deploykit":
            assert os.access(ROOT / words[0], os.X_OK)
            continue
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == expected, f"{page}: {line}\n{done.stdout}\n{done.stderr}"


def test_the_cli_reference_is_what_the_commands_say() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts" / "make_cli_reference", "--check"], check=False)
    assert done.returncode == 0, "docs/cli.md is stale: run scripts/make_cli_reference"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    broken = [
        target for target in LINK.findall(page.read_text(encoding="utf-8")) if not (page.parent / target).exists()
    ]
    assert broken == []


def test_every_command_has_a_page() -> None:
    listed = re.findall(
        r"^## `deploykit ([a-z-]+)`", (ROOT / "docs" / "cli.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert listed
    missing = [name for name in listed if not (ROOT / "docs" / "commands" / f"{name}.md").exists()]
    assert missing == []
