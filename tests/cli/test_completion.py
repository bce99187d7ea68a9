"""The script for the shell, run by bash."""

import shutil
import subprocess

import pytest

from swallowtail.cli import main


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_commands_options_and_choices(capsys, tmp_path):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out

    def complete(*words):
        listing = " ".join(f"'{word}'" for word in words)
        ask = f"COMP_WORDS=({listing}); COMP_CWORD={len(words) - 1}; _swallowtail; echo ${{COMPREPLY[@]}}"
        done = subprocess.run(
            ["bash", "-c", f"{script}\n{ask}"],
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
            timeout=60,
        )
        return done.stdout.split()

    (tmp_path / "cov.npy").touch()
    assert complete("swallowtail", "re") == ["reproduce"]
    assert complete("swallowtail", "fit", "--ch") == ["--checkpoint"]
    assert complete("swallowtail", "fit", "--target", "in") == ["inverse"]
    assert complete("swallowtail", "completion", "z") == ["zsh"]
    assert complete("swallowtail", "fit", "co") == ["cov.npy"]


def test_zsh_takes_the_same_script(capsys):
    assert main(["completion", "zsh"]) == 0
    assert "bashcompinit" in capsys.readouterr().out
