import subprocess
import sys

import pytest

import deploykit


@pytest.mark.parametrize("name", sorted(deploykit._HOMES))
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(deploykit, name) is not None
    assert name in dir(deploykit)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'deploykit' has no attribute 'exprot'"):
        deploykit.exprot  # noqa: B018


@pytest.mark.parametrize("name", ["bench", "export", "recommend"])
def test_a_verb_can_be_called_when_the_package_of_its_name_is_imported(name: str) -> None:
    code = f"import deploykit, deploykit.{name}; print(callable(deploykit.{name}))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "True"


def test_calling_the_package_calls_the_verb() -> None:
    import deploykit.recommend.queueing as queueing

    assert queueing.units_for(1.0, 1.0) == 1
    with pytest.raises(deploykit.DeploykitError, match="resnet51"):
        deploykit.recommend(deploykit.Question(model="resnet51", sla=deploykit.Sla(fps=1)))


def test_importing_deploykit_imports_nothing_else() -> None:
    code = "import deploykit, sys; print([name for name in sys.modules if name.startswith('deploykit.')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
