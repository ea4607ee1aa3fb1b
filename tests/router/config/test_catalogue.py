"""From a configuration to the models that clients may name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from router.config.builder import build
from router.config.catalogue import Catalogue, canonical
from router.config.configuration import Configuration, configure
from router.config.errors import ConfigError, UnknownModel
from router.config.lookup import assign
from router.config.machine import Machine
from router.config.option import Assignment
from tests.factory import embedding_model, language_model, lora_adapter, not_a_model, reranking_model, truncated
from tests.router.config import gguf_bytes as g

MACHINE = Machine(threads=4, memory=64 << 30)
GPU_MACHINE = Machine(threads=4, memory=64 << 30, backends=("cpu", "cuda"), gpu="CUDA0")


def given(**options: object) -> tuple[Assignment, ...]:
    """Options as the command line gives them, in order."""
    items = []
    for name, value in options.items():
        key = name.replace("_", "-")
        for text in value if isinstance(value, list) else [value]:
            item = assign(key, str(text), f"--{key}")
            assert item is not None, key
            items.append(item)
    return tuple(items)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    models = tmp_path / "models"
    models.mkdir()
    language_model(models / "small.gguf", n_ctx_train=2048)
    language_model(models / "large.gguf", seed=2, n_ctx_train=131_072)
    return models


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HF_HUB_CACHE": str(tmp_path / "hub")}


def presets(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "presets.ini"
    path.write_text(text)
    return path


def catalogue(
    tmp_path: Path, environ: dict[str, str], text: str, machine: Machine = MACHINE, **more: object
) -> Catalogue:
    options = given(models_preset=presets(tmp_path, text), **more)
    return configure(options, environ, machine).catalogue


class TestFolder:
    def test_its_files_are_models(self, folder: Path, environ: dict[str, str]) -> None:
        found = configure(given(models_dir=folder), environ, MACHINE).catalogue
        assert sorted(found.models) == ["large", "small"]
        small = found.resolve("small")
        assert (small.source, small.error, small.can_remove) == ("models_dir", "", False)
        assert small.parameters is not None
        assert small.parameters.ctx_size == 2048
        assert small.parameters.n_gpu_layers == 0
        assert found.resolve("large").parameters.ctx_size == 32_768  # type: ignore[union-attr]
        assert small.predictions[0].weights == small.facts.tensor_bytes  # type: ignore[union-attr]

    @pytest.mark.parametrize("damage", [truncated, None])
    def test_a_damaged_file_fails_alone(self, damage: object, folder: Path, environ: dict[str, str]) -> None:
        if damage is truncated:
            truncated(folder / "bad.gguf", folder / "small.gguf")
        else:
            not_a_model(folder / "bad.gguf")
        found = configure(given(models_dir=folder), environ, MACHINE).catalogue
        assert found.resolve("bad").error
        assert found.resolve("bad").key == ""
        assert found.resolve("small").error == ""
        assert [entry.names for entry in found.entries()] == [("large",), ("small",)]

    def test_a_file_for_embeddings_is_loaded_for_embeddings(self, folder: Path, environ: dict[str, str]) -> None:
        embedding_model(folder / "embedder.gguf")
        reranking_model(folder / "reranker.gguf")
        found = configure(given(models_dir=folder), environ, MACHINE).catalogue
        kinds = {
            model.id: model.parameters.embeddings for model in found.models.values() if model.parameters is not None
        }
        assert kinds == {"embedder": True, "large": False, "reranker": True, "small": False}

    def test_an_adapter_is_no_model(self, folder: Path, environ: dict[str, str]) -> None:
        lora_adapter(folder / "adapter.gguf")
        found = configure(given(models_dir=folder), environ, MACHINE).catalogue
        assert "type 'adapter'" in found.resolve("adapter").error


class TestCommandLine:
    def test_one_model_answers_to_every_name(self, folder: Path, environ: dict[str, str]) -> None:
        found = configure(given(model=folder / "small.gguf", alias="a,b"), environ, MACHINE).catalogue
        for name in (None, "", "a", "b", "gpt-4o"):
            assert found.resolve(name).id == "a"

    def test_beside_other_models_it_is_the_default(self, folder: Path, environ: dict[str, str]) -> None:
        found = configure(given(model=folder / "small.gguf", alias="a", models_dir=folder), environ, MACHINE).catalogue
        assert found.resolve(None).id == "a"
        with pytest.raises(UnknownModel):
            found.resolve("gpt-4o")

    def test_values_for_all_models_win_over_presets_and_say_so(
        self, folder: Path, tmp_path: Path, environ: dict[str, str]
    ) -> None:
        text = f"[*]\nc = 100\n[a]\nmodel = {folder / 'small.gguf'}\nc = 200\ntemp = 0.1\n"
        model = catalogue(tmp_path, environ, text, ctx_size=300).resolve("a")
        assert model.parameters is not None
        assert model.parameters.ctx_size == 300
        assert model.request.sampling.temperature == 0.1
        assert [(o.lost.text, o.lost.origin, o.won.origin) for o in model.overridden] == [
            ("100", "[*] line 2", "[a] line 5"),
            ("200", "[a] line 5", "--ctx-size"),
        ]

    def test_what_is_overridden_is_named_at_the_start(
        self, folder: Path, tmp_path: Path, environ: dict[str, str]
    ) -> None:
        path = folder / "small.gguf"
        text = f"[*]\nc = 100\n[a]\nmodel = {path}\nc = 200\n[b]\nmodel = {path}\n"
        warnings = catalogue(tmp_path, environ, text, ctx_size=300).warnings
        assert warnings == ("--ctx-size 300 overrides the presets: [a] line 5, [*] line 2",)
        assert catalogue(tmp_path, environ, text).warnings == ()

    def test_the_command_line_wins_over_the_environment(self, folder: Path, environ: dict[str, str]) -> None:
        environ |= {"LLAMA_ARG_CTX_SIZE": "100", "LLAMA_ARG_MODELS_DIR": str(folder), "LLAMAHERD_PORT": "1234"}
        configuration = configure(given(ctx_size=200), environ, MACHINE)
        assert configuration.settings.port == 1234
        assert configuration.catalogue.resolve("small").parameters.ctx_size == 200  # type: ignore[union-attr]

    def test_flags_without_effect_are_named_in_one_warning(self, folder: Path, environ: dict[str, str]) -> None:
        options = given(model=folder / "small.gguf", jinja="on", metrics="on")
        (warning,) = configure(options, environ, MACHINE).warnings
        assert "--jinja" in warning
        assert "--metrics" in warning

    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"numa": "isolate"}, "numactl"),
            ({"no_jinja": "on"}, "Jinja"),
            ({"ctx_size": "many"}, "ctx-size"),
            ({"ssl_key_file": "/k.pem"}, "ssl-cert-file"),
            ({"api_prefix": "llm"}, "api-prefix"),
            ({"models_dir": "/does/not/exist"}, "/does/not/exist"),
            ({"models_preset": "/does/not/exist"}, "/does/not/exist"),
            ({"default_model": "nobody"}, "nobody"),
        ],
    )
    def test_what_cannot_be_used_ends_the_start(
        self, options: dict[str, object], reason: str, environ: dict[str, str]
    ) -> None:
        with pytest.raises(ConfigError, match=reason):
            configure(given(**options), environ, MACHINE)

    def test_a_projector_without_a_model_is_named(self, environ: dict[str, str]) -> None:
        assert "--mmproj" in configure(given(mmproj="/p.gguf"), environ, MACHINE).warnings[0]


class TestPresets:
    def test_request_defaults_make_no_second_worker(
        self, folder: Path, tmp_path: Path, environ: dict[str, str]
    ) -> None:
        path = folder / "small.gguf"
        text = (
            f'[cold]\nmodel = {path}\ntemp = 0\n[warm]\nmodel = {path}\ntemp = 1\nchat-template-kwargs = {{"a": 1}}\n'
        )
        found = catalogue(tmp_path, environ, text)
        (entry,) = found.entries()
        assert entry.names == ("cold", "warm")
        assert found.resolve("cold").request.sampling.temperature == 0
        assert found.resolve("warm").request.template_kwargs_json == b'{"a":1}'

    def test_load_parameters_and_environment_do(self, folder: Path, tmp_path: Path, environ: dict[str, str]) -> None:
        path = folder / "small.gguf"
        text = f"[a]\nmodel = {path}\n[b]\nmodel = {path}\nctk = q8_0\n[c]\nmodel = {path}\nenv.GGML_X = 1\n"
        found = catalogue(tmp_path, environ, text)
        assert len(found.entries()) == 3
        key = found.resolve("c").key
        assert found.environment(key) == {"GGML_X": "1"}
        assert [entry.default_environment for entry in found.entries()] == [True, True, False]

    def test_names_that_share_a_worker_combine(self, folder: Path, tmp_path: Path, environ: dict[str, str]) -> None:
        path = folder / "small.gguf"
        text = (
            f"[a]\nmodel = {path}\npin = on\npriority = -5\nsleep-idle-seconds = 60\nmax-memory = 4G\n"
            f"[b]\nmodel = {path}\npriority = 3\nsleep-idle-seconds = 30\nunload-idle-seconds = 9\nmax-memory = 2G\n"
        )
        (entry,) = catalogue(tmp_path, environ, text).entries()
        assert (entry.pin, entry.priority, entry.sleep_idle, entry.unload_idle) == (True, 3, 60.0, 0.0)
        assert entry.max_memory == 2 << 30

    def test_a_section_adds_to_the_model_of_the_folder_with_its_name(
        self, folder: Path, tmp_path: Path, environ: dict[str, str]
    ) -> None:
        model = catalogue(tmp_path, environ, "[small]\ntemp = 0.3\n", models_dir=folder).resolve("small")
        assert (model.source, model.error) == ("preset", "")
        assert model.path == str(folder / "small.gguf")
        assert model.request.sampling.temperature == 0.3

    def test_one_bad_preset_fails_that_model_only(self, folder: Path, tmp_path: Path, environ: dict[str, str]) -> None:
        path = folder / "small.gguf"
        text = (
            "[none]\ntemp = 1\n[missing]\nmodel = /does/not/exist.gguf\n"
            f"[typo]\nmodel = {path}\ntmp = 1\n[good]\nmodel = {path}\n"
        )
        found = catalogue(tmp_path, environ, text)
        assert "names no model" in found.resolve("none").error
        assert "/does/not/exist.gguf" in found.resolve("missing").error
        assert "unknown key 'tmp'" in found.resolve("typo").error
        assert found.resolve("good").error == ""
        assert [entry.names for entry in found.entries()] == [("good",)]
        assert len(found.listed()) == 4
        assert len(found.warnings) == 3

    def test_an_alias_that_is_taken_fails_the_later_model(
        self, folder: Path, tmp_path: Path, environ: dict[str, str]
    ) -> None:
        path = folder / "small.gguf"
        text = f"[a]\nmodel = {path}\nalias = x\n[b]\nmodel = {path}\nalias = y,x\n[c]\nmodel = {path}\nalias = a\n"
        found = catalogue(tmp_path, environ, text)
        assert found.resolve("x").id == "a"
        assert "'x' is taken by the model 'a'" in found.resolve("b").error
        assert "'a' is taken by the model 'a'" in found.resolve("c").error
        with pytest.raises(UnknownModel):
            found.resolve("y")

    def test_gpu_layers_without_a_gpu_fail_loudly(self, folder: Path, tmp_path: Path, environ: dict[str, str]) -> None:
        text = f"[a]\nmodel = {folder / 'small.gguf'}\nngl = 99\n[b]\nmodel = {folder / 'small.gguf'}\nngl = 0\n"
        without = catalogue(tmp_path, environ, text)
        assert "no GPU" in without.resolve("a").error
        assert without.resolve("b").error == ""
        entry, host_only = catalogue(tmp_path, environ, text, GPU_MACHINE).entries()
        assert entry.on_gpu
        assert [need.device for need in entry.needs] == ["host", "CUDA0"]
        assert not host_only.on_gpu

    def test_a_quantised_v_cache_needs_flash_attention(
        self, folder: Path, tmp_path: Path, environ: dict[str, str]
    ) -> None:
        text = f"[a]\nmodel = {folder / 'small.gguf'}\nctv = q8_0\nfa = off\n"
        assert "flash attention" in catalogue(tmp_path, environ, text).resolve("a").error

    def test_a_projector_beside_the_model_is_used_unless_it_is_not_wanted(
        self, folder: Path, tmp_path: Path, environ: dict[str, str]
    ) -> None:
        (folder / "seeing").mkdir()
        language_model(folder / "seeing" / "model.gguf")
        entries = [g.string("general.architecture", "clip"), g.flag("clip.has_vision_encoder", True)]
        g.write(folder / "seeing" / "mmproj.gguf", g.header(entries))
        found = configure(given(models_dir=folder), environ, MACHINE).catalogue.resolve("seeing")
        assert found.input_modalities == ("text", "image")
        everywhere = catalogue(tmp_path, environ, "[*]\nno-mmproj = on\n", models_dir=folder)
        given_to_all = catalogue(tmp_path, environ, "", models_dir=folder, no_mmproj="on")
        for model in (everywhere.resolve("seeing"), given_to_all.resolve("seeing")):
            assert model.input_modalities == ("text",)
            assert model.parameters is not None
            assert model.parameters.mmproj_path == ""

    def test_a_loading_mode_on_the_command_line_replaces_mmap_of_a_preset(
        self, folder: Path, tmp_path: Path, environ: dict[str, str]
    ) -> None:
        text = f"[a]\nmodel = {folder / 'small.gguf'}\nno-mmap = on\n"
        model = catalogue(tmp_path, environ, text, load_mode="mmap").resolve("a")
        assert model.parameters is not None
        assert model.parameters.mmap

    def test_the_effective_configuration_can_be_shown_and_read_again(
        self, folder: Path, tmp_path: Path, environ: dict[str, str]
    ) -> None:
        text = f"[*]\nctk = q8_0\n[a]\nmodel = {folder / 'small.gguf'}\nno-mmap = on\nenv.GGML_X = 1\n"
        model = catalogue(tmp_path, environ, text).resolve("a")
        assert "--no-mmap" in model.arguments()
        again = catalogue(tmp_path, environ, model.preset_text()).resolve("a")
        assert again.key == model.key


class TestNames:
    @pytest.fixture
    def found(self, folder: Path, tmp_path: Path, environ: dict[str, str]) -> Catalogue:
        path = folder / "small.gguf"
        text = (
            f"[plain]\nmodel = {path}\nalias = claude-*, gpt-4\n[x:latest]\nmodel = {path}\n"
            f"[u/r:q4_k_m]\nmodel = {path}\n[secret]\nmodel = {path}\nhidden = on\n"
        )
        return catalogue(tmp_path, environ, text)

    @pytest.mark.parametrize(
        ("name", "id"),
        [
            ("plain", "plain"),
            ("plain:latest", "plain"),
            ("x", "x:latest"),
            ("gpt-4", "plain"),
            ("claude-opus-9", "plain"),
            ("u/r:Q4_K_M", "u/r:q4_k_m"),
            ("secret", "secret"),
        ],
    )
    def test_names(self, found: Catalogue, name: str, id: str) -> None:
        assert found.resolve(name).id == id

    def test_hidden_ones_are_not_listed_and_there_is_no_phantom(self, found: Catalogue) -> None:
        assert [model.id for model in found.listed()] == ["plain", "u/r:q4_k_m", "x:latest"]

    def test_unknown_names_come_with_similar_ones(self, found: Catalogue) -> None:
        with pytest.raises(UnknownModel) as raised:
            found.resolve("plane")
        assert raised.value.nearest == ("plain",)
        with pytest.raises(UnknownModel):
            found.resolve(None)

    def test_tags_as_llama_cpp_writes_them(self) -> None:
        assert canonical("u/r:ud-q4_k_xl") == "u/r:Q4_K_XL"
        assert canonical("plain") == "plain"


class TestHub:
    @pytest.fixture
    def hub(self, tmp_path: Path, environ: dict[str, str]) -> Path:
        snapshot = Path(environ["HF_HUB_CACHE"]) / "models--user--repo" / "snapshots" / "c"
        snapshot.mkdir(parents=True)
        return language_model(snapshot / "m-Q4_K_M.gguf")

    def test_cached_models_are_listed_before_their_headers_are_read(self, hub: Path, environ: dict[str, str]) -> None:
        configuration = configure((), environ, MACHINE)
        model = configuration.catalogue.resolve("user/repo:q4_k_m")
        assert (model.source, model.facts, model.can_remove) == ("cache", None, True)
        before = configuration.unread
        later = configuration.reload().resolve("user/repo:Q4_K_M")
        assert later.facts is not None
        assert (before, configuration.unread) == (True, False)
        assert later.key == model.key

    def test_a_preset_may_name_a_repository(self, hub: Path, tmp_path: Path, environ: dict[str, str]) -> None:
        text = (
            "[here]\nhf-repo = user/repo\n[there]\nhf-repo = user/other:Q8_0\n"
            "[u]\nhf-repo = user/repo\nhf-file = m-Q4_K_M.gguf\n"
        )
        found = catalogue(tmp_path, environ, text)
        assert found.resolve("here").path == found.resolve("u").path == str(hub)
        there = found.resolve("there")
        assert (there.missing, there.error, there.key) == ("user/other:Q8_0", "", "")

    def test_sources_may_be_hidden_and_left_out(self, hub: Path, folder: Path, environ: dict[str, str]) -> None:
        hidden = configure(given(models_dir=folder, list="dir"), environ, MACHINE).catalogue
        assert [model.id for model in hidden.listed()] == ["large", "small"]
        assert hidden.resolve("user/repo:Q4_K_M").error == ""
        left_out = configure(given(models_dir=folder, no_hf_cache="on"), environ, MACHINE).catalogue
        assert "user/repo:Q4_K_M" not in left_out.models

    def test_a_preset_may_hide_the_cached_model_it_uses(
        self, hub: Path, tmp_path: Path, environ: dict[str, str]
    ) -> None:
        text = "[mine]\nhf-repo = user/repo\ndedup-cache-models = 1\n"
        found = catalogue(tmp_path, environ, text)
        assert [model.id for model in found.listed()] == ["mine"]
        assert found.resolve("user/repo:Q4_K_M").error == ""


class TestReload:
    @pytest.fixture
    def configuration(self, folder: Path, tmp_path: Path, environ: dict[str, str]) -> Configuration:
        text = f"[a]\nmodel = {folder / 'small.gguf'}\n[b]\nmodel = {folder / 'large.gguf'}\n"
        return configure(given(models_preset=presets(tmp_path, text)), environ, MACHINE)

    def test_nothing_changed(self, configuration: Configuration) -> None:
        before = configuration.catalogue
        assert configuration.reload().difference(before).empty

    def test_only_what_changed_differs(self, configuration: Configuration, folder: Path, tmp_path: Path) -> None:
        before = configuration.catalogue
        small, large = folder / "small.gguf", folder / "large.gguf"
        text = f"[a]\nmodel = {small}\ntemp = 0\n[b]\nmodel = {large}\nc = 64\n[c]\nmodel = {small}\n"
        presets(tmp_path, text)
        difference = configuration.reload().difference(before)
        assert difference.names_added == ("c",)
        assert difference.names_changed == ("a", "b")
        assert difference.same == (before.resolve("a").key,)
        assert difference.gone == (before.resolve("b").key,)
        assert len(difference.added) == 1

    def test_another_file_under_the_same_name_is_another_worker(
        self, configuration: Configuration, folder: Path
    ) -> None:
        before = configuration.catalogue
        language_model(folder / "new.gguf", seed=9)
        os.replace(folder / "new.gguf", folder / "small.gguf")
        difference = configuration.reload().difference(before)
        assert difference.gone == (before.resolve("a").key,)

    def test_a_bad_file_changes_nothing(self, configuration: Configuration, tmp_path: Path) -> None:
        before = configuration.catalogue
        presets(tmp_path, "[*]\nnonsense = 1\n")
        with pytest.raises(ConfigError, match="nonsense"):
            configuration.reload()
        assert configuration.catalogue is before

    def test_headers_are_read_once(self, configuration: Configuration, monkeypatch: pytest.MonkeyPatch) -> None:
        def never(path: str) -> None:
            raise AssertionError(f"{path} was read again")

        monkeypatch.setattr("router.config.headers.read_facts", never)
        build(configuration.inputs, configuration.headers)


def test_threads_for_all_are_shared_and_those_of_one_model_are_its_own(
    folder: Path, tmp_path: Path, environ: dict[str, str]
) -> None:
    text = f"[a]\nmodel = {folder / 'small.gguf'}\nthreads = 2\n[b]\nmodel = {folder / 'large.gguf'}\n"
    options = given(models_preset=presets(tmp_path, text))
    configuration = configure(options, environ, MACHINE)
    assert configuration.policy().threads == 4
    assert [entry.reserved_threads for entry in configuration.catalogue.entries()] == [2, 0]
    chosen = configure((*options, *given(threads=3)), environ, MACHINE)
    assert chosen.policy().threads == 3
    assert [entry.reserved_threads for entry in chosen.catalogue.entries()] == [0, 0]


def test_kept_state_has_a_folder_per_load_key(folder: Path, tmp_path: Path, environ: dict[str, str]) -> None:
    plain = configure(given(models_dir=folder), environ, MACHINE).catalogue
    keeping = configure(given(models_dir=folder, kv_keep="1G", state_dir=tmp_path), environ, MACHINE).catalogue
    key = plain.resolve("small").key
    assert plain.load(key).settings.kv_keep_dir == ""
    assert keeping.load(key).settings.kv_keep_dir == str(tmp_path / "kv" / key)
    assert keeping.load(key).settings.kv_keep_bytes == 1 << 30


def test_the_policy_fills_in_what_the_machine_decides(folder: Path, environ: dict[str, str]) -> None:
    policy = configure(given(models_dir=folder), environ, MACHINE).policy()
    assert policy.threads == 4
    assert policy.spare_workers == 1
    assert dict(policy.budget)["host"] == MACHINE.budget[0][1]
    assert configure(given(models_dir=folder), environ, GPU_MACHINE).policy().spare_workers == 0
    chosen = configure(given(models_dir=folder, memory_budget="3G", spare_workers=2, max_swap_wait=7), environ, MACHINE)
    assert chosen.policy().budget == (("host", 3 << 30),)
    assert chosen.policy().spare_workers == 2
    assert chosen.policy().max_swap_wait == 7.0
