"""Files are written whole or not at all, with the usual permissions."""

import os
import stat
import tempfile
from pathlib import Path

import pytest

from dpem._files import check_writable, write_text


class TestFiles:
    def test_an_interrupted_write_leaves_the_old_file(self, tmp_path, monkeypatch):
        path = tmp_path / "m.json"
        write_text(path, "old")

        def full(descriptor):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"m.json' cannot be written: no space left on device\.$"):
            write_text(path, "new")
        assert path.read_text() == "old"
        assert list(tmp_path.iterdir()) == [path]

    def test_a_link_stays_a_link(self, tmp_path):
        (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
        write_text(tmp_path / "link.json", "text")
        assert (tmp_path / "link.json").is_symlink()
        assert (tmp_path / "real.json").read_text() == "text"

    def test_permissions_follow_the_umask(self, tmp_path):
        (tmp_path / "usual").touch()
        write_text(tmp_path / "m.json", "text")
        assert stat.S_IMODE((tmp_path / "m.json").stat().st_mode) == stat.S_IMODE((tmp_path / "usual").stat().st_mode)

    @pytest.mark.parametrize(
        ("path", "words"), [("no/m.json", "its folder does not exist"), (".", "something other than a file is there")]
    )
    def test_unwritable_paths(self, path, words, tmp_path):
        with pytest.raises(OSError, match=rf"cannot be written: {words}\.$"):
            check_writable(tmp_path / path)

    def test_a_folder_without_permission(self):
        """As another user where root runs the tests: root may write anywhere."""
        user = os.geteuid()
        with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to other users
            Path(folder).chmod(0o555)
            try:
                if user == 0:
                    os.seteuid(65534)
                with pytest.raises(PermissionError, match=r"cannot be written: permission denied\.$"):
                    check_writable(Path(folder) / "m.json")
            finally:
                os.seteuid(user)
                Path(folder).chmod(0o700)

    def test_a_check_leaves_nothing(self, tmp_path):
        check_writable(tmp_path / "m.json")
        assert not list(tmp_path.iterdir())
