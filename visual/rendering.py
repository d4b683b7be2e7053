"""Fast frames of the MuJoCo tasks under software OpenGL; recording and evaluation share them.

Drawn at twice the size without shadows, reflections and multisampling, then averaged over 2 × 2 pixels. Colours differ
from the environment's own frames, so a model sees one kind only: a recording states which, and :func:`open_world
<visual.environments.open_world>` takes it from there.

Where a task asks for it, a robot's collision shapes stand in for its visual meshes, with the convex hull for each mesh:
Cube's arm and gripper are 270,000 triangles otherwise, and at 64 px the two pictures differ little.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from visual.camera import Camera

_SUPERSAMPLING = 2
_VISUAL_GROUP, _COLLISION_GROUP = 2, 3


class FastRendering(gym.Wrapper[Any, Any, Any, Any]):
    """Replace an environment's rendering.

    Parameters
    ----------
    env
        An environment on MuJoCo, from dm_control or OGBench.
    camera
        What is drawn.
    image_size
        Height and width of the frames in pixels.
    """

    def __init__(self, env: gym.Env[Any, Any], camera: Camera, image_size: int) -> None:
        super().__init__(env)
        self._camera, self._size = camera, image_size
        self._renderer: Any = None
        self._model: Any = None
        self._options: Any = None
        inner: Any = env.unwrapped
        if hasattr(inner, "render_multiview"):
            # stable-worldmodel prefers this method of the innermost environment to any wrapper's render().
            inner.render_multiview = self.render

    def render(self) -> NDArray[np.uint8]:
        """Draw the current state: (image_size, image_size, 3) uint8."""
        import mujoco

        model, data = _simulation(self.env.unwrapped)
        if model is not self._model:
            self._build(model)
        inner: Any = self.env.unwrapped
        camera = inner.custom_camera if self._camera.name is None else self._camera.name
        self._renderer.update_scene(data, camera=camera, scene_option=self._options)
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            self._renderer.scene.flags[flag] = 0
        fine = self._renderer.render().reshape(self._size, _SUPERSAMPLING, self._size, _SUPERSAMPLING, 3)
        return np.asarray(fine.mean(axis=(1, 3)) + 0.5, dtype=np.uint8)

    def close(self) -> None:
        """Release the OpenGL context, then close the environment."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = self._model = None
        super().close()

    def _build(self, model: Any) -> None:
        import mujoco

        if self._renderer is not None:
            self._renderer.close()
        size = self._size * _SUPERSAMPLING
        model.vis.quality.offsamples = 0
        model.vis.quality.shadowsize = 1
        model.vis.global_.offwidth = model.vis.global_.offheight = size
        options = mujoco.MjvOption()
        if self._camera.collision_shapes:
            options.geomgroup[_VISUAL_GROUP], options.geomgroup[_COLLISION_GROUP] = 0, 1
            options.flags[mujoco.mjtVisFlag.mjVIS_CONVEXHULL] = 1
        _paint(model, self._camera)
        self._renderer = mujoco.Renderer(model, size, size)
        self._model, self._options = model, options


class ReleasedRendering(gym.Wrapper[Any, Any, Any, Any]):
    """Keep the environment's own rendering, and free OGBench's OpenGL context on closing, which it forgets."""

    def close(self) -> None:
        """Release the OpenGL context, then close the environment."""
        inner: Any = self.env.unwrapped
        for name in ("_renderer", "custom_renderer"):
            if getattr(inner, name, None) is not None:
                getattr(inner, name).close()
                setattr(inner, name, None)
        super().close()


def require_rendering() -> None:
    """Check that MuJoCo can draw here, before anything else makes an OpenGL context.

    This context comes first for two reasons. Triton, which CUDA builds of PyTorch load, crashes the process when it is
    loaded after Mesa's software renderer (both bring LLVM), so it is loaded here. And dm_control's contexts must be
    younger than MuJoCo's connection to the display, or freeing them at exit fails.

    Raises
    ------
    ValueError
        If mujoco is too new for dm_control, or no OpenGL context can be made.
    """
    import mujoco

    version = importlib.metadata.version("mujoco")
    if int(version.split(".")[0]) >= 4:
        raise ValueError(f"mujoco {version} does not work with dm_control 1.0.50: install 'mujoco>=3.17,<4'.")
    with contextlib.suppress(ImportError):
        import triton  # noqa: F401
    try:
        context = mujoco.GLContext(8, 8)
        context.make_current()
        context.free()
    except Exception as error:
        raise ValueError(
            f"No OpenGL library for rendering can be used here (MUJOCO_GL={os.environ.get('MUJOCO_GL', '')}; "
            f"{type(error).__name__}): install libegl1, libgl1 and libgles2 and set MUJOCO_GL=egl."
        ) from None


def rendering_wrapper(
    camera: Camera, image_size: int, *, fast: bool
) -> Callable[[gym.Env[Any, Any]], gym.Wrapper[Any, Any, Any, Any]]:
    """A wrapper factory for ``World``: the fast renderer, or the environment's own."""
    return partial(FastRendering, camera=camera, image_size=image_size) if fast else ReleasedRendering


def _simulation(inner: Any) -> tuple[Any, Any]:
    """The MuJoCo model and data of an environment of dm_control or OGBench."""
    physics = getattr(getattr(inner, "env", None), "physics", None)
    if physics is not None:
        return physics.model.ptr, physics.data.ptr
    return inner.model, inner.data


def _paint(model: Any, camera: Camera) -> None:
    for index in range(model.ngeom):
        if any(part in model.geom(index).name for part in camera.hidden):
            model.geom_rgba[index] = 0
        elif camera.collision_shapes and model.geom_group[index] == _COLLISION_GROUP:
            body = model.body(model.geom_bodyid[index]).name
            for part, color in camera.colors.items():
                if part in body:
                    model.geom_rgba[index, :3] = color
