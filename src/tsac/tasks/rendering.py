"""Pictures on a machine without a screen."""

from __future__ import annotations

import os
import sys


def render_without_screen() -> None:
    """Have MuJoCo draw through EGL where there is no screen and nobody has chosen otherwise with ``MUJOCO_GL``."""
    screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if not sys.platform.startswith("linux") or screen or os.environ.get("MUJOCO_GL"):
        return
    try:
        import mujoco
        from mujoco.egl import GLContext
    except ModuleNotFoundError:
        return  # a task that is not drawn by MuJoCo
    except (ImportError, AttributeError, RuntimeError) as error:
        raise RuntimeError(
            "Without a screen, MuJoCo draws through EGL, which is missing here: "
            "apt-get install libegl1 libgl1-mesa-dri, "
            "or choose another way with the environment variable MUJOCO_GL."
        ) from error
    os.environ["MUJOCO_GL"] = "egl"
    mujoco.gl_context.GLContext = GLContext  # chosen when mujoco was imported, before anybody asked for a picture
