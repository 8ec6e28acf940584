"""The faults. A new gate, or a new place where exactness can be lost, gets its own."""

from tests.mutants.planting import Fault

GATE = "tests/unit/verification/test_exactness.py"


def gate(name: str) -> tuple[str, ...]:
    """The gate's tests of that name."""
    return (GATE, "-k", name)


TREES = gate("test_trees")
CHAINS = gate("test_chains")
ROUNDS = gate("rounds_after")
GREEDY = gate("greedy")
CANDIDATES = gate("candidates_and")
STOPS = ("tests/unit/verification/test_stopped_drafts.py",)
LATE = ("tests/unit/serve_app/coordination/test_late_drafts.py", "-k", "does_not_change_the_law")
STRETCHES = ("tests/unit/engines/verifier/test_stepper.py", "-k", "own_draft or drafts_itself")
FUSED = ("tests/unit/engines/torch/test_fused.py", "-k", "what_transformers_say")
JUDGED = ("tests/unit/verification/test_semantic.py",)
HEADS = ("tests/unit/verification/test_decision_head.py",)
TWO_STEPS = ("tests/unit/engines/verifier/test_two_steps.py",)
SEMANTIC_ROUNDS = ("tests/unit/serve_app/coordination/test_semantic_rounds.py",)
PRODUCTS = ("tests/unit/engines/torch/test_products.py",)
PREDICTOR_ROUNDS = ("tests/unit/lab/training/predictor/test_rounds.py", "-k", "whole_blocks")
PREDICTOR_PARTS = ("tests/unit/lab/training/predictor/test_drafted.py",)
ROUND_LOG = ("tests/unit/drafting/test_round_log.py",)
LOGGED_ROUNDS = ("tests/unit/lab/training/predictor/test_logged.py", "-k", "not trained")
PREDICTOR_FIT = ("tests/unit/lab/training/predictor/test_mlp.py",)
KV_STORE = ("tests/unit/engines/kv/test_blocks.py",)
RESIDENCY = ("tests/unit/scheduling/test_residency.py",)
ADMISSION = ("tests/unit/admission",)
UNTRUSTED = ("tests/unit/serve_app/coordination/test_untrusted_drafters.py",)
CONTAINED = ("tests/unit/engines/verifier/test_contained.py", "-k", "torch")
SUSPECTS = ("tests/unit/scheduling/test_crash_suspects.py",)
TRANSPORTS = ("tests/unit/actors/coordinator/test_transport_suite.py",)
CONTAINED_DRAFTS = ("tests/unit/engines/drafter/test_contained.py",)
SLO_AWARE = ("tests/unit/scheduling/test_slo_aware.py",)
QUOTAS = ("tests/unit/tenants/test_quotas.py",)
GRAMMAR_STATE = ("tests/unit/grammar/test_state.py",)


def grammar(name: str) -> tuple[str, ...]:
    """The tests of that name of what a verifier makes of grammars, over the quickest engine."""
    return ("tests/unit/engines/verifier/test_grammar.py", "-k", f"{name} and not vllm")


FAULTS = (
    Fault(
        "what a pass that failed has committed stays",
        "self.token_ids = self.token_ids[: block.position]",
        "pass",
        CONTAINED,
    ),
    Fault(
        "one that failed alone once is guilty",
        "if member in self.warned:",
        "if True:",
        ("tests/unit/engines/test_fault_bisection.py",),
    ),
    Fault(
        "whoever was there when the verifier died is suspected",
        "losses[name] >= _LOSSES_IN_SILENCE",
        "losses[name] >= 1",
        SUSPECTS,
    ),
    Fault(
        "a draft whose step failed goes on where it was",
        "generation.tree, generation.job = DraftTree(), again",
        "pass",
        CONTAINED_DRAFTS,
    ),
    Fault(
        "an untrusted device's word is taken for what it drafted from",
        "protocols=protocols if trusted else untrusted_safe_protocols(protocols, generation.request.params),",
        "protocols=protocols,",
        UNTRUSTED,
    ),
    Fault(
        "KV is shared whatever its salt",
        "self._lost, parent = [], self._salt",
        'self._lost, parent = [], b""',
        KV_STORE,
    ),
    Fault(
        "what an answer did not use stays charged",
        "bucket.give_back(asked.tokens - tokens)",
        "bucket.give_back(0)",
        QUOTAS,
    ),
    Fault(
        "whoever is due first makes room",
        "return holder.due_at_s, -holder.last_used",
        "return -holder.due_at_s, -holder.last_used",
        RESIDENCY,
    ),
    Fault(
        "what is copied back is another block's content",
        "self._pool.copy_back(self.blocks[len(self._digests)], self._lost[0])",
        "self._pool.copy_back(self.blocks[len(self._digests)], self._lost[-1])",
        KV_STORE,
    ),
    Fault(
        "tokens that were forced and refused are shared as if they had been committed",
        "del self._lost[max(0, length // self._block_tokens - len(self._digests)) :]",
        "pass",
        KV_STORE,
    ),
    Fault(
        "of rows that do not fill a block the last are not multiplied",
        "rows = (count - first + blocks - block - 1) // (blocks - block)",
        "rows = count // blocks",
        PRODUCTS,
    ),
    Fault(
        "a layer of several parts has the bias of its last",
        "bias[:outputs] = torch.cat([_bias(own, width) for (_, own), width in zip(layers, widths, strict=True)])",
        "bias[:outputs] = torch.cat([_bias(layers[-1][1], width) for width in widths])",
        PRODUCTS,
    ),
    Fault(
        "a row attends to those that are computed with it and come behind it",
        "_weigh(scores[q][: run.shortest + q // group + len(path)])",
        "_weigh(scores[q][: run.shortest + count - 1 + len(path)])",
        FUSED,
    ),
    Fault(
        "a node of a tree sees all nodes before it",
        "path = base + seen[node].nonzero()[0]",
        "path = base + np.arange(node + 1)",
        FUSED,
    ),
    Fault(
        "a verifier goes on behind an end token in its own draft",
        "autonomous_run.end_ids.isdisjoint(accepted_by(block, outcome))",
        "True",
        STRETCHES,
    ),
    Fault(
        "a verifier drafts past the last token that the response may take",
        "most = min(grant.tokens, room, grant.until_position - len(committed) - 1)",
        "most = min(grant.tokens, room)",
        STRETCHES,
    ),
    Fault(
        "a draft that comes late is dropped whatever the rule",
        "return plan.window > 0 and self.rule(plan) in RATIO_RULES",
        "return False",
        LATE,
    ),
    Fault(
        "siblings drawn without replacement are tested with it",
        "without(drawn_from, draft_rows.place(row, token_id)) if distinct else drawn_from",
        "drawn_from",
        TREES,
    ),
    Fault(
        "siblings drawn with replacement are tested without it",
        "without(drawn_from, draft_rows.place(row, token_id)) if distinct else drawn_from",
        "without(drawn_from, token_id)",
        TREES,
    ),
    Fault("the rule is never told of distinct siblings", "distinct=block.distinct,", "distinct=False,", TREES),
    Fault("siblings are drawn without replacement whatever was agreed", "if distinct and drawn:", "if drawn:", TREES),
    Fault("siblings are drawn with replacement whatever was agreed", "if distinct and drawn:", "if False:", TREES),
    Fault(
        "dsd draws from the row before rounding",
        "return DraftRow(rounded_logits(row, wire.logit_field))",
        "return DraftRow(row)",
        CHAINS,
    ),
    Fault(
        "dssd draws from the row before rounding",
        "siblings(row.probs, numbers, distinct=False), numerators=row.numerators)",
        "siblings(np.exp(row.logits - row.logits.max()), numbers, distinct=False), numerators=row.numerators)",
        CHAINS,
    ),
    Fault(
        "tslt truncates after sampling",
        "return DraftRow(logits, support)",
        "return DraftRow(row[support], support)",
        CHAINS,
    ),
    Fault(
        "ACCEPT noise is used for drafting",
        "self.position, Purpose.DRAFT_TOKEN",
        "self.position, Purpose.ACCEPT",
        CHAINS,
    ),
    Fault(
        "draft positions share their noise",
        "self.params, len(self.token_ids) + job.depth, job.shape",
        "self.params, len(self.token_ids), job.shape",
        gate("chains_of_two"),
    ),
    Fault(
        "siblings are drawn with one number",
        "drawn.append(draw(probs, number))",
        "drawn.append(draw(probs, numbers[0]))",
        TREES,
    ),
    Fault(
        "siblings are tested with one number",
        "tests = accept_uniforms(len(path), len(siblings))",
        "tests = np.repeat(accept_uniforms(len(path), 1), len(siblings))",
        TREES,
    ),
    Fault(
        "depths are tested with one number",
        "block.position + depth, Purpose.ACCEPT",
        "block.position, Purpose.ACCEPT",
        gate("chains_of_two"),
    ),
    Fault(
        "the verifier corrects with ACCEPT noise",
        "len(halt.path), Purpose.RESIDUAL",
        "len(halt.path), Purpose.ACCEPT",
        CHAINS,
    ),
    Fault(
        "a correction is drawn with another position's noise",
        "block.position + len(halt.path), Purpose.RESIDUAL",
        "block.position, Purpose.RESIDUAL",
        ("tests/unit/verification/test_speculative.py", "-k", "each_block"),
    ),
    Fault(
        "the device tests candidates with the noise that drew them",
        "uniforms(seed, position, Purpose.CANDIDATE_ACCEPT",
        "uniforms(seed, position, Purpose.CANDIDATE",
        CANDIDATES,
    ),
    Fault(
        "the device corrects with the noise that drew the candidates",
        "uniforms(seed, position, Purpose.RESIDUAL",
        "uniforms(seed, position, Purpose.CANDIDATE",
        CANDIDATES,
    ),
    Fault(
        "the ratio is inverted, as printed",
        "min(target_prob, draft_prob) / draft_prob if draft_prob > 0.0",
        "min(target_prob, draft_prob) / target_prob if target_prob > 0.0",
        CHAINS,
    ),
    Fault(
        "the residual is the draft's",
        "rest: Probs = np.maximum(target - draft, 0.0)\n    total",
        "rest: Probs = np.maximum(draft - target, 0.0)\n    total",
        CHAINS,
    ),
    Fault(
        "the residual is the target's row (WISP eq. 3)",
        "rest: Probs = np.maximum(target - draft, 0.0)\n    total",
        "rest: Probs = target.copy()\n    total",
        CHAINS,
    ),
    Fault("the residual is not renormalised", "rest / total if total > 0.0", "rest if total > 0.0", TREES),
    Fault(
        "the bonus token is chosen at the row before",
        "return 1 + path[-1] if path else 0",
        "return path[-1] if path else 0",
        CHAINS,
    ),
    Fault(
        "the bonus token is the first row's",
        "BlockDecision(halt.path, choices[halt.row] if",
        "BlockDecision(halt.path, choices[0] if",
        CHAINS,
    ),
    Fault(
        "the target chooses at a path's end with another position's noise",
        "RowGroup(generation.params, work.checked.position + len(path), counts",
        "RowGroup(generation.params, work.checked.position, counts",
        ("tests/unit/engines/verifier/test_ratio.py", "-k", "company and torch"),
    ),
    Fault(
        "the fallback behind the candidates is skipped",
        "int(source.token_ids[passed.argmax()]) if passed.any() else None",
        "int(source.token_ids[passed.argmax()])",
        CANDIDATES,
    ),
    Fault(
        "the target's penalties count a draft token one row late",
        "drafted[np.arange(1, conditioned_on.size + 1),",
        "drafted[np.minimum(np.arange(2, conditioned_on.size + 2), group.rows - 1),",
        gate("chains_of_two"),
    ),
    Fault(
        "the target's penalties leave out a tree's path",
        "generation.counts_behind(behind), generation.allowed",
        "generation.counts_behind([*work.block.forced]), generation.allowed",
        TREES,
    ),
    Fault(
        "the target's penalties leave out a device's correction",
        "generation.counts_behind(block.forced)",
        "generation.counts",
        ROUNDS,
    ),
    Fault(
        "the target's penalties count committed tokens one late",
        "self.counts.append(token_ids)",
        "self.counts.append(token_ids[:-1])",
        ROUNDS,
    ),
    Fault(
        "a correction is drawn from its own residual again",
        "return draw(rest, float(uniforms(seed",
        "return draw(residual(rest, draft_probs), float(uniforms(seed",
        CHAINS,
    ),
    Fault(
        "a correction is drawn by the verifier too",
        "return BlockDecision(path, None, correction_source(",
        "return BlockDecision(path, int(possible[0]), correction_source(",
        CHAINS,
    ),
    Fault(
        "the device commits its correction twice",
        "job.correction = token_id\n        generation.commit_correction(token_id)",
        "generation.commit_correction(token_id)\n        generation.commit_correction(token_id)",
        ROUNDS,
    ),
    Fault(
        "one draft position's row is shifted",
        "self._index = {row: index for",
        "self._index = {row: max(index - 1, 0) for",
        gate("chains_of_two"),
    ),
    Fault(
        "one draft position's target row is shifted",
        "        start + row\n",
        "        start + max(row - 1, 0)\n",
        gate("chains_of_two"),
    ),
    Fault(
        "the device corrects from its first position's row",
        "self.rows[key] = row.numerators",
        "self.rows[key] = (job.rows or rows)[0].numerators",
        gate("chains_of_two"),
    ),
    Fault(
        "the device tests candidates against its first tokens",
        "draft_probs[source.token_ids])\n        passed",
        "draft_probs[: len(source.token_ids)])\n        passed",
        CANDIDATES,
    ),
    Fault(
        "top-p is applied before temperature",
        '"temperature": _scale,\n    "top_k": _top_k,\n    "top_p": _top_p,',
        '"top_p": _top_p,\n    "temperature": _scale,\n    "top_k": _top_k,',
        ("tests/unit/sampling/test_logits.py", "-k", "mixed_batch"),
    ),
    Fault(
        "the target is not truncated",
        '"top_k": _top_k,',
        "",
        CHAINS,
    ),
    Fault(
        "the target chooses before it truncates",
        "adjusted = adjust_logits(logits, groups).detach()",
        "adjusted = logits.float().detach()",
        CHAINS,
    ),
    Fault(
        "ends are withheld one position too far",
        "max(0, params.withheld_until - self.position)",
        "max(0, params.withheld_until - self.position + 1)",
        gate("ends"),
    ),
    Fault(
        "ends are withheld one position too short",
        "max(0, params.withheld_until - self.position)",
        "max(0, params.withheld_until - self.position - 1)",
        gate("ends"),
    ),
    Fault(
        "greedy ties go to the last index",
        "torch.from_numpy(scores.detach().float().numpy().argmax(axis=-1))",
        "torch.from_numpy(scores.shape[-1] - 1 - scores.detach().float().numpy()[:, ::-1].argmax(axis=-1))",
        GREEDY,
    ),
    Fault(
        "noise is added to logits as they come",
        "noise + (rows - rows.max(axis=-1, keepdims=True))",
        "noise + rows",
        ("tests/unit/sampling/test_choosing.py", "-k", "flip"),
    ),
    Fault(
        "a rounded row is tested unrounded",
        "return values if deferral is None else round_floats(values, deferral.row_field)",
        "return values",
        ("tests/unit/verification/test_speculative.py", "-k", "each_block"),
    ),
    Fault(
        "a draft is cut by what was drawn",
        "kept = min(draft_tokens, len(block.draft))",
        "kept = min(draft_tokens, len(block.draft)) if block.draft[-1:] != (0,) else 0",
        gate("cut_whatever"),
    ),
    Fault(
        "a draft stops before a token for what it is",
        "step = _decide(job, known[0]) if job.rule.asks and job.draws_chain else StopDecision.DRAW",
        "step = StopDecision.STOP if job.rule.asks and job.protocol.draw(known, layer)[0].token_ids == (0,)"
        " else StopDecision.DRAW",
        STOPS,
    ),
    Fault(
        "a device forgets at each position what it drafted so far",
        "job.rule = rule.after(features)",
        "job.rule = rule",
        ("tests/unit/engines/drafter/test_engine_stops.py", "-k", "count_what_was_drafted"),
    ),
    Fault(
        "a chain is cut by a length that tells what is in it",
        "return PROTOCOLS[plan.protocol].rule(situation.params, situation.wire) in RATIO_RULES",
        "return False",
        ("tests/unit/rounds/test_stopping_devices.py",),
    ),
    Fault(
        "a chain is cut of which a device logs what became",
        "not (device.stops or device.logs)",
        "not device.stops",
        ("tests/unit/rounds/test_stopping_devices.py",),
    ),
    Fault(
        "what stands behind a rejection is logged",
        "tested = verdict.sent_chain.features[: verdict.accepted + verdict.rejected]",
        "tested = verdict.sent_chain.features",
        ROUND_LOG,
    ),
    Fault(
        "the last token of each logged round is taken for rejected",
        "accepted[(np.cumsum(lengths) - 1)[[each.rejected for each in rounds]]] = 0",
        "accepted[np.cumsum(lengths) - 1] = 0",
        LOGGED_ROUNDS,
    ),
    Fault(
        "a damaged record of a log is read",
        "if CHECKSUM.unpack_from(body, last)[0] != crc32(body[at:last]):",
        "if False:",
        ROUND_LOG,
    ),
    Fault(
        "a copy of a log is learned from again",
        "longest[log.header.file] = log",
        "longest[str(id(log))] = log",
        LOGGED_ROUNDS,
    ),
    Fault(
        "a device is told no price",
        "must_use, price = chooser.must_use(plan), chooser.price(estimate)",
        "must_use, price = chooser.must_use(plan), None",
        ("tests/unit/rounds/test_stopping_devices.py",),
    ),
    Fault(
        "a token is worth sending that is not worth its row",
        "if survival <= self.price.send_above:",
        "if survival <= 0.0:",
        ("tests/unit/drafting/test_cost_aware.py",),
    ),
    Fault(
        "a step of the device costs as much as a row of a busy verifier",
        "value * further.step_s",
        "value * dearer * further.step_s",
        ("tests/unit/selection/test_stop_prices.py",),
    ),
    Fault(
        "a draft that stops keeps the hidden state of the token it did not draw",
        "            if layer.rows:\n",
        "            if True:\n",
        ("tests/unit/engines/drafter/test_engine_stops.py",),
    ),
    Fault(
        "how far devices draft is learned behind a rejection, too",
        "[True] * (accepted_len == drafted < ordered)",
        "[True] * (drafted < ordered)",
        ("tests/unit/selection/test_drafted_shares.py", "-k", "behind_a_rejection"),
    ),
    Fault(
        "an answer asked for again is drawn again",
        "self.answered = (job.request, draft)",
        "self.answered = None",
        ("tests/unit/engines/drafter",),
    ),
    Fault(
        "a mismatch passes though one before it was rejected",
        "tuple(at for at, _ in takewhile(itemgetter(1), zip(found, accepted, strict=True)))",
        "tuple(at for at, passes in zip(found, accepted, strict=True) if passes)",
        JUDGED,
    ),
    Fault(
        "a rejected token stands, and not the target's",
        "BlockDecision(tuple(range(rejected)), choices[rejected], overrides=passed)",
        "BlockDecision(tuple(range(rejected)), draft[rejected], overrides=passed)",
        JUDGED,
    ),
    Fault(
        "of a block that is accepted whole nobody is told what passed",
        "choices[len(draft)] if bonus else None, overrides=passed)",
        "choices[len(draft)] if bonus else None)",
        JUDGED,
    ),
    Fault(
        "a judge that fails lets all mismatches pass",
        "return [[False] * len(questions[0].drafter_hidden)]",
        "return [[True] * len(questions[0].drafter_hidden)]",
        JUDGED,
    ),
    Fault(
        "a judge that fails at one block fails at those beside it",
        "return [answer for question in questions for answer in judged(judge, [question])]",
        "return [[False] * len(question.drafter_hidden) for question in questions]",
        JUDGED,
    ),
    Fault(
        "a mismatch whose probability is the threshold itself passes",
        "(rejection_probs < self.threshold)",
        "(rejection_probs <= self.threshold)",
        HEADS,
    ),
    Fault(
        "a head takes one model's state for the other's",
        "[w.drafter(drafter_hidden), w.target(target_hidden), link_inputs(w.csi, csi)]",
        "[w.drafter(target_hidden), w.target(drafter_hidden), link_inputs(w.csi, csi)]",
        HEADS,
    ),
    Fault(
        "all blocks are judged by the link of the first",
        "[csi_features(one.channel) for one in questions]",
        "[csi_features(questions[0].channel) for one in questions]",
        HEADS,
    ),
    Fault(
        "where a device does not answer its mismatches pass",
        "answers = [False] * len(self.mismatches) if accepted is None else accepted",
        "answers = [True] * len(self.mismatches) if accepted is None else accepted",
        TWO_STEPS,
    ),
    Fault(
        "a judge sees the target's states one row late",
        "PendingSemanticRound(block, tuple(choices), tuple(found), hidden[found], judged)",
        "PendingSemanticRound(block, tuple(choices), tuple(found), hidden[[row - 1 for row in found]], judged)",
        TWO_STEPS,
    ),
    Fault(
        "a round in which something passed is called exact",
        "return not outcome.overrides if protocol.judged else",
        "return True if protocol.judged else",
        SEMANTIC_ROUNDS,
    ),
    Fault(
        "mismatches are judged where nobody allowed it",
        "if (judged and PROTOCOLS[name].judged) or",
        "if PROTOCOLS[name].judged or",
        SEMANTIC_ROUNDS,
    ),
    Fault(
        "what a predictor learns of follows rejected tokens as if they were committed",
        "self._commit(token_id if verdict.token_after is None else verdict.token_after)",
        "self._commit(token_id)",
        PREDICTOR_ROUNDS,
    ),
    Fault(
        "what a predictor learns of was drafted where a round has its bonus token",
        "if one.depth < window_tokens and one.room > 1",
        "if one.room > 1",
        PREDICTOR_ROUNDS,
    ),
    Fault(
        "a predictor is tested on prompts it learned from",
        "tokens.where(np.isin(tokens.prompt, of))",
        "tokens.where(np.isin(np.arange(len(tokens)) % len(prompts), of))",
        PREDICTOR_PARTS,
    ),
    Fault(
        "a predictor's layers lose the means of batch normalisation",
        "bias = (bias - _numbers(norm.running_mean)) * scale + _numbers(norm.bias)",
        "bias = bias * scale + _numbers(norm.bias)",
        PREDICTOR_FIT,
    ),
    Fault(
        "a predictor's calibration leaves out that classes were balanced",
        "bias.astype(np.float64) * platt.slope + platt.offset",
        "bias.astype(np.float64) * platt.slope",
        PREDICTOR_FIT,
    ),
    Fault(
        "a promise waits while best effort holds the places",
        "if together.places < places and fits:",
        "if True:",
        ADMISSION,
    ),
    Fault(
        "promises take best effort's floor",
        "places = bounds.places - bounds.floor_places",
        "places = bounds.places",
        ADMISSION,
    ),
    Fault(
        "a resumed response is asked for load",
        "if resumed or not promised.places or not bounds.weighs:",
        "if not promised.places or not bounds.weighs:",
        ADMISSION,
    ),
    Fault(
        "room is kept for nobody",
        "keeps = keeps or keeps_room(one, self.now_s, self._state.fairness)",
        "keeps = False",
        ADMISSION,
    ),
    Fault(
        "what is in vain goes before what can be kept",
        "self._needs(one).in_vain and not one.asked.resumed)",
        "False)",
        ADMISSION,
    ),
    Fault(
        "passes are short for what is in vain",
        "return 1.0 if self.in_vain else self.share",
        "return self.share",
        ADMISSION,
    ),
    Fault(
        "a promise broken in vain makes its class dearer",
        "if one.promised and (kept or one.needs is None or not one.needs.in_vain):",
        "if one.promised:",
        ADMISSION,
    ),
    Fault(
        "classes are refused alike however dear they are",
        "return one.refused > self._all.refused + _MARGIN and one.granted < self._all.granted",
        "return one.refused > self._all.refused + _MARGIN",
        ADMISSION,
    ),
    Fault(
        "a class that comes late makes all dearer",
        "return self._factors.get(slo_class, 1.0)",
        "return min(self._factors.values(), default=1.0)",
        ADMISSION,
    ),
    Fault(
        "first tokens come before who is in time while not all can be kept",
        "if since_s <= block.deadline_at_s < inf and not (over and block.first):",
        "if since_s <= block.deadline_at_s < inf:",
        SLO_AWARE,
    ),
    Fault(
        "prompts come before whoever is due soon",
        "could_s = now_s + min(computed_s, _NEAR_S)",
        "could_s = now_s",
        SLO_AWARE,
    ),
    Fault(
        "prompts are put off for as long as others are due soon",
        "min(could_s, block.deadline_at_s + _PUT_OFF_S))",
        "could_s)",
        SLO_AWARE,
    ),
    Fault(
        "much best effort makes promises late",
        "return min(max(arrived_at_s + least_s, now_s + _NEAR_S), arrived_at_s + wait_s)",
        "return arrived_at_s + least_s",
        SLO_AWARE,
    ),
    Fault(
        "best effort waits for ever",
        "return min(max(arrived_at_s + least_s, now_s + _NEAR_S), arrived_at_s + wait_s)",
        "return max(arrived_at_s + least_s, now_s + _NEAR_S)",
        SLO_AWARE,
    ),
    Fault(
        "a response under way is worth as much on any verifier",
        "return max(LEAST_LOAD_TOKENS, FULL_TOKENS / filling) if filling else LOAD_TOKENS",
        "return LOAD_TOKENS",
        ("tests/unit/routing/test_scores.py",),
    ),
    Fault(
        "a response counts for as much as any other",
        "return filling * reported.bounded - reported.responses if filling else 0.0",
        "return 0.0",
        ("tests/unit/routing/test_scores.py",),
    ),
    Fault(
        "a drained verifier's responses leave for another target",
        "any(one.up and one.target == target and self._has_room(one) for one in self._there.values())",
        "any(one.up and self._has_room(one) for one in self._there.values())",
        ("tests/unit/routing/test_draining.py",),
    ),
    Fault(
        "a coordinator that cannot be told what was read waits for it",
        "behind = not self._unheard and self._sent - self._read >= self._most",
        "behind = self._sent - self._read >= self._most",
        ("tests/unit/serve_app/coordination/generations/test_outlets.py",),
    ),
    Fault(
        "what other ingresses sent is no load",
        "return max(0, calls - streams, round(said.responses) + self._ongoing[replica] - streams - ongoing)",
        "return max(0, calls - streams)",
        ("tests/unit/serve_app/coordination/test_request_router.py",),
    ),
    Fault(
        "who was refused too often does not go first",
        "return not one.asked.resumed, not state.fairness.is_behind(one.slo.name)",
        "return not one.asked.resumed, True",
        ADMISSION,
    ),
    Fault(
        "a promise is priced in another speculation mode",
        "return self._shapes.get(mode.name, _ALONE)",
        "return next(iter(self._shapes.values()), _ALONE)",
        ADMISSION,
    ),
    Fault(
        "somebody waits for longer than it may",
        "if self.now_s >= one.until_s",
        "if self.now_s > one.until_s",
        ADMISSION,
    ),
    Fault(
        "what was cancelled tells of lengths and promises",
        "if one is None or output_tokens is None:",
        "output_tokens = output_tokens or 0\n        if one is None:",
        ADMISSION,
    ),
    Fault(
        "who is not sampled is traced",
        "caller.context.span_id, caller.sampled)",
        "caller.context.span_id, True)",
        ("tests/unit/tracing/test_sampling.py",),
    ),
    Fault(
        "a caller's flag does not count",
        "bool(int(flags, 16) & _SAMPLED)",
        "True",
        ("tests/unit/contracts/test_tracing.py",),
    ),
    Fault(
        "a round's phases leave it",
        "from_s, until_s = (max(began_at_s, min(at_s, committed_at_s)) for at_s in (from_s, until_s))",
        "pass",
        ("tests/unit/tracing/test_rounds.py",),
    ),
    Fault(
        "rounds do not know their passes",
        "self._passes.setdefault(number, []).append(by)",
        "pass",
        ("tests/unit/tracing/test_responses.py",),
    ),
    Fault(
        "a bound that shrank refuses who waits",
        "if one.rules == self._rules]",
        "if True]",
        ADMISSION,
    ),
    Fault(
        "other rules shorten the wait of who waits",
        "if self.now_s >= one.until_s",
        "if self.now_s >= min(one.until_s, one.since_s + self._rules.wait_s(one.slo))",
        ADMISSION,
    ),
    Fault(
        "fewer places suspend who is made",
        "places = max(self.bounds.places, *(one.rules.max_active for one in self._state.active.values()))",
        "places = self.bounds.places",
        ADMISSION,
    ),
    Fault(
        "reloadable settings are another version",
        "data[section] = {name: value for name, value in data[section].items() if name not in names}",
        "pass",
        ("tests/unit/config/test_reloadable.py",),
    ),
    Fault(
        "a grammar may end wherever it stands",
        "if self._matcher.is_accepting():\n            mask |= self._vocabulary.only_ends",
        "if True:\n            mask |= self._vocabulary.only_ends",
        GRAMMAR_STATE,
    ),
    Fault(
        "a grammar that is over goes on",
        "if () in self._faults or self._ended_at is not None:",
        "if () in self._faults:",
        GRAMMAR_STATE,
    ),
    Fault(
        "a grammar stays at the end of a draft that was looked at",
        "return self._consume(path)\n            finally:\n                self._back_to(fed)",
        "return self._consume(path)\n            finally:\n                pass",
        GRAMMAR_STATE,
    ),
    Fault(
        "a grammar that ended with a draft's first token is over, whatever came of the draft",
        "self._ended_at >= fed:",
        "self._ended_at > fed:",
        GRAMMAR_STATE,
    ),
    Fault(
        "a grammar gives back an end in a draft that it was never fed",
        "(fed if self._ended_at is None else min(fed, self._ended_at))",
        "fed",
        GRAMMAR_STATE,
    ),
    Fault(
        "a grammar knows its masks from where it stood before",
        "self._known, self._faults = {}, {} if fault is None else {(): fault}",
        "self._faults = {} if fault is None else {(): fault}",
        GRAMMAR_STATE,
    ),
    Fault(
        "a grammar makes all masks of a block whatever that takes",
        "if now_s - began_s >= within_s:",
        "if now_s < began_s:",
        GRAMMAR_STATE,
    ),
    Fault(
        "a grammar reads all output again behind each fault",
        "whole, had = self._whole or (None, 0)",
        "whole, had = None, 0",
        GRAMMAR_STATE,
    ),
    Fault(
        "a grammar goes on from tokens that were taken back",
        "if self._whole is not None and self._whole[1] > left:",
        "if self._whole is not None and left < 0:",
        GRAMMAR_STATE,
    ),
    Fault(
        "a grammar stays behind a mask that failed",
        "        finally:\n            self._back_to(fed)\n\n    def _back_to",
        "        finally:\n            pass\n\n    def _back_to",
        ("tests/unit/engines/verifier/test_openings.py",),
    ),
    Fault(
        "the engine's thread makes masks that take long",
        "0.0 if grammar.cost.slow else self._left_s",
        "self._left_s",
        ("tests/unit/engines/verifier/test_openings.py",),
    ),
    Fault(
        "a grammar may end a response in its reasoning",
        "return self._vocabulary.all_but_ends\n",
        "return self._vocabulary.everything\n",
        GRAMMAR_STATE,
    ),
    Fault(
        "a grammar that a draft alone has begun stays begun",
        "self._begun_at is not None and self._begun_at > fed:",
        "self._begun_at is None:",
        GRAMMAR_STATE,
    ),
    Fault(
        "a grammar masks all rows of a draft as the first",
        "paths = [tuple(path[:end]) for end in",
        "paths = [tuple(path[:first]) for _ in",
        grammar("every_window and sampled"),
    ),
    Fault(
        "a grammar does not fork with a tree",
        "generation.counts_behind(behind), generation.allowed(behind, 1, len(behind))",
        "generation.counts_behind(behind), generation.allowed(work.block.forced, 1, len(work.block.forced))",
        grammar("trees_fork and sampled"),
    ),
    Fault(
        "what a grammar forbids is left to a judge",
        "judged = work.generation.lawful(block.forced, block.draft)",
        "judged = len(block.draft)",
        grammar("no_judge"),
    ),
    Fault(
        "a grammar stays behind a pass that failed",
        "self.grammar.keep(block.position - self.prompt_tokens)",
        "pass",
        grammar("pass_that_fails"),
    ),
    Fault(
        "a response that is resumed begins its grammar anew",
        "self._grammars.open(grammar, request.output_ids, request.account)",
        "self._grammars.open(grammar, (), request.account)",
        grammar("resumption and sampled"),
    ),
    Fault(
        "what is forced is taken though the grammar forbids it",
        "if fault is None and lawful == len(committed):",
        "if fault is None:",
        grammar("forced_tokens"),
    ),
    Fault(
        "reasoning that a prompt has begun anew is taken for over",
        "return grammar if last == reasoning.end else Grammar(grammar.text, reasoning.end)",
        "return grammar if reasoning.end in prompt_ids else Grammar(grammar.text, reasoning.end)",
        ("tests/unit/serve_app/api/test_structured.py", "-k", "reasoning"),
    ),
    Fault(
        "a quote in a tool's arguments ends their text",
        'self._escaped = found[0] == "\\\\"',
        "self._escaped = False",
        ("tests/unit/serve_app/api/test_tools.py", "-k", "calls_are_read"),
    ),
    Fault(
        "a frame is read however long it is",
        "if length > most_bytes:",
        "if most_bytes < -1:",
        TRANSPORTS,
    ),
    Fault(
        "calls that wait are not sent again when a stream breaks",
        "self._send(number, call.written(self.protocol_version), call.most_bytes, writer)",
        "pass",
        TRANSPORTS,
    ),
    Fault(
        "of two ranges of versions the lowest common one is used",
        "highest = min(self.newest, other.newest)",
        "highest = max(self.oldest, other.oldest)",
        ("tests/unit/actors/fleet/test_handshake.py", "-k", "highest"),
    ),
    Fault(
        "a device is told of generations without their salt",
        "return OpenGeneration(name, prompt_ids, params, output_ids, cache_salt=salt), terms",
        "return OpenGeneration(name, prompt_ids, params, output_ids), terms",
        ("tests/unit/wire/test_calls.py",),
    ),
)
