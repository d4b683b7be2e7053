"""Symmetric positive-definite helpers and the checks at the door (theory/spd.py).

1. Each check returns float64, lets good input through unchanged, and refuses the rest in one sentence that names the
   argument.
2. An SPD check accepts every condition number up to 1e8 at any scale, refuses a negative eigenvalue, and names the null
   direction of a singular matrix (logged sin/cos pairs, duplicated columns).
3. Square roots: A^{1/2}A^{1/2} = A and A^{-1/2} A A^{-1/2} = I, both symmetric positive definite.
4. The generalised eigenproblem: EᵀQE = I and EᵀME = diag(μ), with μ the eigenvalues of Q^{-1/2}MQ^{-1/2}.
5. The condition number is their ratio: 1 iff M ∝ Q, unchanged by scaling, by one congruence of both and by exchange.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from strategies import Array, conditions, dims, random_rotation, random_spd, seeds, spd_matrices, spd_pairs, tolerance

from theory.spd import (
    check_array,
    check_count,
    check_generator,
    check_kappa,
    check_psd,
    check_result,
    check_scale,
    check_spd,
    check_symmetric,
    check_vector,
    condition_number,
    inv_sqrt_spd,
    relative_eigh,
    sqrt_spd,
    symmetrize,
)

# -- 1. checks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: check_array([[1.0, 2.0], [3.0]], "thing"), "thing must be a rectangular array of numbers"),
        (lambda: check_array([1.0, {}], "thing"), "thing must be a rectangular array of numbers"),
        (lambda: check_array(["a"], "thing"), "thing must hold numbers"),
        (lambda: check_array([True], "thing"), "thing must hold numbers"),
        (lambda: check_array(np.array([1.0, True], dtype=object), "thing"), "thing must hold numbers, .*True"),
        (lambda: check_array(np.array(["1", 2.0], dtype=object), "thing"), "thing must hold numbers, .*'1'"),
        (lambda: check_array(np.array([1], dtype="m8[s]"), "thing"), "thing must hold numbers"),
        (lambda: check_array(np.array([np.timedelta64(1)], dtype=object), "thing"), "thing must hold numbers"),
        (lambda: check_array(np.ma.masked_array([1.0, 2.0], mask=[0, 1]), "thing"), "thing must have no masked"),
        (lambda: check_scale(np.ma.masked, "thing"), "thing must have no masked"),
        (lambda: check_array(torch.ones(1, requires_grad=True), "thing"), "thing must convert to a NumPy array"),
        (lambda: check_array(torch.ones(1, dtype=torch.bfloat16), "thing"), "thing must convert to a NumPy array"),
        (lambda: check_array(torch.ones(1, device="meta"), "thing"), "thing must convert to a NumPy array"),
        (lambda: check_array([10**400], "thing"), "thing must be finite"),
        (lambda: check_array([np.longdouble("1e4000")], "thing"), "thing must be finite"),
        (lambda: check_psd(np.full((2, 2), 1.7e308), "thing"), "thing must be smaller"),
        (lambda: check_result(np.array([1.0, np.inf]), "thing"), "thing has a size for which the result is beyond"),
        (lambda: check_generator("2", "thing"), "thing must be a whole number"),
        (lambda: check_generator(None, "thing"), "thing must be a whole number"),
        (lambda: check_generator(-1, "thing"), "thing must be at least 0"),
        (lambda: check_array([1 + 0j], "thing"), "thing must be real"),
        (lambda: check_array([1.0, np.nan], "thing"), "thing must be finite"),
        (lambda: check_array([1.0, -np.inf], "thing"), "thing must be finite"),
        (lambda: check_array([1.0], "thing", ndim=2), "thing must have 2 dimensions"),
        (lambda: check_array([[1.0]], "thing", ndim=1), "thing must have 1 dimension,"),
        (lambda: check_array([[1.0]], "thing", shape=(None, 2)), r"thing must have shape \(any, 2\)"),
        (lambda: check_array([[1.0]], "thing", shape=(2,)), r"thing must have shape \(2,\)"),
        (lambda: check_vector([], "thing"), "thing must not be empty"),
        (lambda: check_vector([[1.0]], "thing"), "thing must have 1 dimension"),
        (lambda: check_vector([1.0], "thing", 2), r"thing must have shape \(2,\)"),
        (lambda: check_symmetric(np.ones((2, 3)), "thing"), "thing must be square"),
        (lambda: check_symmetric(np.ones((0, 0)), "thing"), "thing must not be empty"),
        (lambda: check_symmetric(np.eye(2), "thing", 3), r"thing must have shape \(3, 3\)"),
        (lambda: check_symmetric([[1.0, 1e-9], [0.0, 1.0]], "thing"), "thing must be symmetric"),
        (lambda: check_spd(np.diag([1.0, -0.5]), "thing"), "smallest eigenvalue is -0.5"),
        (lambda: check_spd(np.zeros((2, 2)), "thing"), "thing must be positive definite, but it is singular"),
        (lambda: check_psd(np.diag([1.0, -1e-6]), "thing"), "thing must be positive semidefinite"),
        (lambda: check_scale(0.0), "scale must be positive"),
        (lambda: check_scale(-2, "thing"), "thing must be positive, but it is -2"),
        (lambda: check_scale([1.0], "thing"), "thing must have 0 dimensions"),
        (lambda: check_scale(np.nan, "thing"), "thing must be finite"),
        (lambda: check_kappa(0.999), "kappa must be at least 1"),
        (lambda: check_kappa(np.inf), "kappa must be finite"),
        (lambda: check_kappa("2"), "kappa must hold numbers"),
        (lambda: check_count(2.0, "thing"), "thing must be a whole number"),
        (lambda: check_count(True, "thing"), "thing must be a whole number"),
        (lambda: check_count(None, "thing"), "thing must be a whole number"),
        (lambda: check_count(0, "thing"), "thing must be at least 1, but it is 0"),
        (lambda: check_count(1, "thing", 2), "thing must be at least 2, but it is 1"),
    ],
)
def test_bad_input_is_one_sentence(call, message: str) -> None:
    """Claim 1."""
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".") or "NumPy array" in message


def test_good_input_passes_as_float64() -> None:
    """Claim 1: integers, lists, float32 and arrays of Python numbers become float64 with the same values."""
    for value in (
        [[1, 2], [3, 4]],
        np.array([[1, 2], [3, 4]], dtype=np.float32),
        np.array([[1, 2], [3, 4]], dtype=object),
        np.ma.masked_array([[1, 2], [3, 4]]),
        torch.tensor([[1, 2], [3, 4]]),
    ):
        array = check_array(value, "thing", shape=(None, 2))
        assert array.dtype == np.float64
        assert_array_equal(array, [[1.0, 2.0], [3.0, 4.0]])
    assert check_vector([1, 2], "thing", 2).dtype == np.float64
    assert check_scale(3) == 3.0
    assert check_kappa(1) == 1.0
    stream = np.random.default_rng(3)
    assert check_generator(stream, "thing") is stream
    assert check_generator(3, "thing").integers(2**60) == stream.integers(2**60)
    assert check_count(np.int64(4), "thing") == 4
    assert_array_equal(check_psd(np.zeros((2, 2)), "thing"), np.zeros((2, 2)))


@given(matrix=spd_matrices(), factor=st.sampled_from([1e-150, 1.0, 1e150]))
def test_a_check_returns_what_it_was_given(matrix: Array, factor: float) -> None:
    """Claims 1 and 2: nothing is repaired, at any conditioning up to 1e8 and any scale.

    Mutation: compare λmin with an absolute threshold such as 1e-12.
    """
    for check in (check_symmetric, check_spd, check_psd):
        assert_array_equal(check(matrix * factor, "thing"), matrix * factor)


@given(matrix=spd_matrices(2), seed=seeds())
def test_rounding_passes_and_asymmetry_does_not(matrix: Array, seed: int) -> None:
    """Claim 1: an antisymmetric part at rounding level is averaged away; one of 1e-8 of the largest entry is refused.

    Mutation: drop the division by ``scale`` in ``check_symmetric``.
    """
    scale = np.abs(matrix).max()
    noise = np.random.default_rng(seed).standard_normal(matrix.shape)
    noise = (noise - noise.T) / np.abs(noise - noise.T).max()
    for factor in (1e-12, 1.0, 1e12):
        kept = check_symmetric(factor * (matrix + 1e-13 * scale * noise), "thing")
        assert_array_equal(kept, kept.T)
        assert_allclose(kept, factor * matrix, rtol=0, atol=1e-12 * factor * scale)
        with pytest.raises(ValueError, match="must be symmetric"):
            check_symmetric(factor * (matrix + 1e-8 * scale * noise), "thing")


# -- 2. definiteness ---------------------------------------------------------------------------------------------------


@given(seed=seeds(), dim=dims(2), scale=st.sampled_from([1e-6, 1.0, 1e6]))
def test_a_singular_matrix_is_refused_with_its_null_direction(seed: int, dim: int, scale: float) -> None:
    """Claim 2: the direction in the message is the one that the matrix sends to zero.

    Mutation: name ``eigenvectors[:, -1]`` in the message.
    """
    rng = np.random.default_rng(seed)
    rotation = random_rotation(rng, dim)
    eigenvalues = np.append(0.0, rng.uniform(1.0, 2.0, dim - 1))
    singular = symmetrize(scale * (rotation * eigenvalues) @ rotation.T)
    with pytest.raises(ValueError, match="singular along the direction") as caught:
        check_spd(singular, "thing")
    printed = re.search(r"direction \((.*)\)\.$", str(caught.value))
    if printed:
        named = np.array([float(entry) for entry in printed[1].split(",")])
    else:
        named = np.zeros(dim)
        for index, entry in re.findall(r"\[(\d+)\] (\S+?)[,.]?(?= |$)", str(caught.value)):
            named[int(index)] = float(entry)
    listed, null = named != 0, rotation[:, 0]
    assert_allclose(named[listed] * np.sign(named @ null), null[listed], atol=0, rtol=0.01)
    assert listed.sum() == min(dim, 6)
    assert np.abs(null[listed]).min() >= np.abs(null[~listed]).max(initial=0.0)
    assert_array_equal(check_psd(singular, "thing"), singular)


def test_logged_angles_are_named() -> None:
    """Claim 2: two copies of one coordinate, and a sin/cos pair of a constant radius squared, as logs hold them."""
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 500)
    columns = np.stack([np.sin(angle) ** 2, np.cos(angle) ** 2, rng.standard_normal(500)])
    with pytest.raises(ValueError, match=r"state_cov .* singular along the direction \(0\.707, 0\.707, -?\d"):
        check_spd(np.cov(columns), "state_cov")
    copies = rng.standard_normal((9, 500))
    copies[8] = copies[0]
    with pytest.raises(ValueError, match=r"with largest entries \[\d+\] 0\.707, \[\d+\] -0\.707"):
        check_spd(np.cov(copies), "state_cov")


@given(seed=seeds(), dim=dims(), condition=conditions(1e6))
def test_a_negative_eigenvalue_is_refused(seed: int, dim: int, condition: float) -> None:
    """Claim 2: however small beside the others, as long as it stands clear of rounding.

    Mutation: compare ``abs(smallest)`` with the threshold in ``check_spd``.
    """
    rng = np.random.default_rng(seed)
    rotation = random_rotation(rng, dim)
    eigenvalues = rng.uniform(1.0, 2.0, dim)
    eigenvalues[0] = -1.0 / condition
    indefinite = symmetrize((rotation * eigenvalues) @ rotation.T)
    with pytest.raises(ValueError, match="must be positive definite, but its smallest eigenvalue is -"):
        check_spd(indefinite, "thing")
    with pytest.raises(ValueError, match="must be positive semidefinite"):
        check_psd(indefinite, "thing")


@given(seed=seeds(), dim=dims(), rank=st.integers(1, 64))
def test_gram_matrices_of_any_rank_are_semidefinite(seed: int, dim: int, rank: int) -> None:
    """Claim 2: rounding of a rank-deficient Gram matrix is not taken for a negative eigenvalue.

    Mutation: set the threshold of ``check_psd`` to zero.
    """
    factor = np.random.default_rng(seed).standard_normal((dim, rank))
    gram = factor @ factor.T
    assert_array_equal(check_psd(gram, "thing"), gram)


# -- 3. roots ----------------------------------------------------------------------------------------------------------


@given(seed=seeds(), dim=dims(), condition=conditions(), scale=st.sampled_from([1e-3, 1.0, 1e3]))
def test_square_roots_square_back(seed: int, dim: int, condition: float, scale: float) -> None:
    """Claim 3.

    Mutation: leave out ``np.sqrt`` in ``inv_sqrt_spd``, or return the Cholesky factor from ``sqrt_spd``.
    """
    matrix = random_spd(np.random.default_rng(seed), dim, condition, scale)
    root, inverse = sqrt_spd(matrix), inv_sqrt_spd(matrix)
    allowed = tolerance(condition, dim)
    assert np.linalg.norm(root @ root - matrix) <= tolerance(1.0, dim) * np.linalg.norm(matrix)
    assert np.linalg.norm(inverse @ matrix @ inverse - np.eye(dim)) <= allowed * dim**0.5
    for symmetric in (root, inverse):
        assert np.linalg.norm(symmetric - symmetric.T) <= tolerance(1.0, dim) * np.linalg.norm(symmetric)
        assert np.linalg.eigvalsh(symmetrize(symmetric))[0] > 0


@given(seed=seeds(), dim=dims(), rank=st.integers(0, 64))
def test_the_root_of_a_semidefinite_matrix_is_finite(seed: int, dim: int, rank: int) -> None:
    """Claim 3: eigenvalues that rounding turned negative have root zero, not nan.

    Mutation: drop the ``np.clip`` in ``sqrt_spd``.
    """
    factor = np.random.default_rng(seed).standard_normal((dim, rank))
    gram = symmetrize(factor @ factor.T)
    root = sqrt_spd(gram)
    assert np.linalg.norm(root @ root - gram) <= tolerance(1.0, dim) * np.linalg.norm(gram)


@given(seed=seeds(), dim=dims(), batch=st.integers(0, 3))
def test_symmetrize_keeps_the_quadratic_form(seed: int, dim: int, batch: int) -> None:
    """Claim 3's rounding remover: xᵀAx is untouched and the result is exactly symmetric, for stacks too.

    Mutation: transpose all axes (``matrix.T``) rather than the last two.
    """
    rng = np.random.default_rng(seed)
    matrix, vector = rng.standard_normal((batch, dim, dim)), rng.standard_normal(dim)
    symmetric = symmetrize(matrix)
    assert symmetric.shape == matrix.shape
    assert_array_equal(symmetric, symmetric.transpose(0, 2, 1))
    assert_allclose(symmetric @ vector @ vector, matrix @ vector @ vector, atol=1e-12 * dim**2)


# -- 4. and 5. two matrices --------------------------------------------------------------------------------------------


@given(seed=seeds(), dim=dims(), condition=conditions(1e6), task_condition=conditions(1e4))
def test_the_generalised_eigenproblem_diagonalises_both(
    seed: int, dim: int, condition: float, task_condition: float
) -> None:
    """Claim 4, against the dense definition Q^{-1/2} M Q^{-1/2}.

    Mutation: call ``eigh(task_metric, metric)``.
    """
    rng = np.random.default_rng(seed)
    metric, task_metric = random_spd(rng, dim, condition), random_spd(rng, dim, task_condition)
    eigenvalues, vectors = relative_eigh(metric, task_metric)
    allowed = tolerance(task_condition, dim) * eigenvalues[-1]
    assert np.all(np.diff(eigenvalues) >= 0)
    assert_allclose(vectors.T @ task_metric @ vectors, np.eye(dim), atol=tolerance(task_condition, dim))
    assert_allclose(vectors.T @ metric @ vectors, np.diag(eigenvalues), rtol=0, atol=allowed)
    whitener = inv_sqrt_spd(task_metric)
    assert_allclose(eigenvalues, np.linalg.eigvalsh(symmetrize(whitener @ metric @ whitener)), rtol=0, atol=allowed)
    plain, frame = relative_eigh(metric)
    assert_allclose(plain, relative_eigh(metric, np.eye(dim))[0], rtol=0, atol=tolerance(1.0, dim) * plain[-1])
    assert_allclose((frame * plain) @ frame.T, metric, rtol=0, atol=tolerance(1.0, dim) * plain[-1])


@given(seed=seeds(), dim=dims(2, 32), condition=conditions(1e6), factor=st.floats(1e-3, 1e3))
def test_the_condition_number_is_invariant(seed: int, dim: int, condition: float, factor: float) -> None:
    """Claim 5: exact for a matrix built with that condition number; kept by scale, congruence and exchange.

    Mutation: return the ratio of Q's eigenvalues, or of ``eigenvalues[1]``.
    """
    rng = np.random.default_rng(seed)
    metric, frame = random_spd(rng, dim, condition), random_rotation(rng, dim) * np.exp(rng.uniform(-1, 1, dim))
    allowed = tolerance(condition, dim) * 100
    assert condition_number(metric) == pytest.approx(condition, rel=allowed)
    assert condition_number(factor * metric) == pytest.approx(condition, rel=allowed)
    moved, task_metric = symmetrize(frame.T @ metric @ frame), symmetrize(frame.T @ frame)
    assert condition_number(moved, factor * task_metric) == pytest.approx(condition, rel=allowed)
    assert condition_number(task_metric, moved) == pytest.approx(condition, rel=allowed)


@given(pair=spd_pairs(1, 32, 1e3), factor=st.floats(1e-3, 1e3))
def test_the_condition_number_is_one_iff_the_metrics_are_proportional(pair: tuple[Array, Array], factor: float) -> None:
    """Claim 5, both directions: ρ = 1 for M = fQ, and the relative spread of Q⁻¹M bounds ρ − 1 from below otherwise.

    Mutation: ignore ``task_metric`` in ``condition_number``.
    """
    metric, task_metric = pair
    allowed = tolerance(1e3, metric.shape[0])
    assert condition_number(factor * task_metric, task_metric) == pytest.approx(1.0, rel=allowed)
    ratios = np.diag(metric) / np.diag(task_metric)
    assert condition_number(metric, task_metric) >= ratios.max() / ratios.min() * (1 - 1e-9)


def test_condition_number_names_its_arguments() -> None:
    """Claim 1 at a function's door."""
    with pytest.raises(ValueError, match=r"^metric must be positive definite"):
        condition_number(np.diag([1.0, 0.0]))
    with pytest.raises(ValueError, match=r"^task_metric must have shape \(2, 2\)"):
        condition_number(np.eye(2), np.eye(3))
