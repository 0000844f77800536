/* How answers are drawn for this person: what they chose stays theirs with any model, the rest is as the model has it. */

import { computed, type ReadonlySignal, signal } from '@preact/signals';

import { type SamplingDefaults, USUAL } from '../../src/planner/sampling_defaults';
import { keepSettings, keptSettings, modelSettings } from './saved_choices';
import type { AskSettings } from '../app/view';

/** What the person chose over what the model has, as signals. */
export class AskChoices {
  readonly model: ReadonlySignal<AskSettings>; // of whoever chose nothing
  readonly settings: ReadonlySignal<AskSettings>;
  private readonly chosen = signal<Partial<AskSettings>>(keptSettings());
  private readonly defaults = signal<SamplingDefaults>(USUAL);

  constructor() {
    this.model = computed(() => modelSettings(this.defaults.value));
    this.settings = computed(() => ({ ...this.model.value, ...this.chosen.value }));
  }

  /** The model that is asked now has these. */
  follow(defaults: SamplingDefaults): void {
    this.defaults.value = defaults;
  }

  /** The person sets this; what they set before stays. */
  choose(change: Partial<AskSettings>): void {
    this.keep({ ...this.chosen.value, ...change });
  }

  /** Nothing is chosen any more. */
  forget(): void {
    this.keep({});
  }

  private keep(chosen: Partial<AskSettings>): void {
    this.chosen.value = chosen;
    keepSettings(chosen);
  }
}
