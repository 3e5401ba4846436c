"""Every file format that gradreg reads. A new reader is one line: a maker of a sample, the reader, and what must hold.

`read` gets a folder and returns a value. `hold` gets the value and the folder, and fails if the value is not what the
files say by another parser, or if no program could have meant it.
"""

import fuzz_data as data
import fuzz_results as results
import fuzz_runs as runs
from fuzz_values import Format, seal_evaluation, seal_tensors

from docs.make import benches
from gradreg import Certificates, Regularity, evaluation
from gradreg.data import cifar10, load
from gradreg.report.writing import runs_text
from gradreg.runs import recipes
from gradreg.runs.listing import _row

FORMATS: tuple[Format, ...] = (
    Format("run", runs.make_run, runs.read_run, runs.hold_run, seal_tensors, runs.lesser_run),
    Format("run of before checksums", runs.copied("run"), runs.read_run, runs.hold_run),
    Format("table of runs", runs.make_run, lambda folder: runs_text([folder], "json")),
    Format(
        "checkpoints",
        runs.make_checkpoints,
        runs.read_checkpoints,
        runs.hold_checkpoints,
        seal_tensors,
        runs.lesser_checkpoints,
    ),
    Format("weights", runs.make_weights, runs.read_weights, runs.hold_weights, seal_tensors),
    Format("torch.save", runs.make_saved(old=False), runs.read_saved, runs.hold_saved),
    Format("torch.save of old", runs.make_saved(old=True), runs.read_saved, runs.hold_saved),
    Format("recipe", runs.make_recipe, lambda folder: recipes.config(folder / "mine.toml"), runs.hold_recipe),
    Format("shipped network", runs.make_shipped, lambda folder: _row("net", folder)),
    Format("evaluation", results.make_evaluation, evaluation.load, results.hold_evaluation, seal_evaluation),
    Format("evaluation of before checksums", runs.copied("run/evaluation"), evaluation.load, results.hold_evaluation),
    Format("report", results.make_evaluation, results.read_report, seal=seal_evaluation, slow=True),
    Format("interrupted evaluation", results.make_state, results.read_state, seal=seal_tensors, slow=True),
    Format("pool", results.make_pool, results.read_pool, results.hold_pool, seal_tensors),
    Format("pool of before checksums", runs.copied("pool.safetensors"), results.read_pool, results.hold_pool),
    Format(
        "certificates",
        results.make_certificates,
        lambda f: Certificates.load(f / "c.safetensors"),
        results.hold_certificates,
        seal_tensors,
    ),
    Format("interrupted certification", results.make_certification, results.read_certification, seal=seal_tensors),
    Format(
        "regularity",
        results.make_regularity,
        lambda f: Regularity.load(f / "r.safetensors"),
        results.hold_regularity,
        seal_tensors,
    ),
    Format(
        "ledger", results.make_ledger, results.read_ledger, results.hold_ledger, seal_tensors, results.lesser_ledger
    ),
    Format(
        "flag",
        results.make_flag,
        results.read_flag,
        results.hold_flag,
    ),
    Format("bench", results.make_bench, lambda folder: benches.read(folder / "b.json")),
    Format("idx", data.make_idx(False), lambda folder: load("fashion-mnist", folder), data.hold_idx),
    Format("idx.gz", data.make_idx(True), lambda folder: load("fashion-mnist", folder), data.hold_idx),
    Format(
        "cifar binary", data.make_cifar(cifar10._BINARY, False), lambda folder: load("cifar10", folder), data.hold_cifar
    ),
    Format(
        "cifar pickles",
        data.make_cifar(cifar10._PYTHON, False),
        lambda folder: load("cifar10", folder),
        data.hold_cifar,
    ),
    Format(
        "cifar archive", data.make_cifar(cifar10._BINARY, True), lambda folder: load("cifar10", folder), data.hold_cifar
    ),
    Format("npy", data.make_npy, lambda folder: load("cifar10.1", folder), data.hold_images),
    Format("npz", data.make_npz, lambda folder: load(f"npz:{folder / 'mine.npz'}"), data.hold_npz),
    Format("table of labels", data.make_table, lambda folder: load(f"folder:{folder}")),
    Format("mnist5k", data.make_digits, data.read_digits, sealed=True, slow=True),
    Format("images", data.make_images, data.read_images, data.hold_pixels),
    Format("note of resized copies", data.make_note, data.read_note),
)
