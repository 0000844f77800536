/*
 * A run as its origin asks it: items in, outputs back, over the peers that the mesh's placement names (twin of
 * peer/origin/run_client.py). Edge. A tab asks item after item, so it has one lane.
 */

import { peersOf } from '../dataflow/flow_route';
import { fromBytes, type ValueArray } from '../dataflow/value_codec';
import { NoPlan, RunFailed } from '../errors';
import type { GraphManifest } from '../planner/graph_manifest';
import type { MeshView } from '../replication/mesh_view';
import type { FlowHost, Manifests } from '../stage/flow_host';
import type { PeerLinks } from '../transport/peer_links';
import { type OfferedGraph, RunLane } from './run_lane';

/** One run of a model that the mesh offers. Made by `openRun`; close it when it is over. */
export class RunClient {
  private readonly offered: OfferedGraph;
  private readonly lane: RunLane;

  constructor(
    links: PeerLinks,
    view: MeshView,
    flow: Pick<FlowHost, 'listen' | 'exchange'>,
    offered: OfferedGraph,
  ) {
    this.offered = offered;
    this.lane = new RunLane(links, view, flow, offered);
  }

  /** That of the model. */
  get manifest(): GraphManifest {
    return this.offered.manifest;
  }

  /** The peers that compute, in the order of their first stages. */
  get peers(): readonly string[] {
    return peersOf(this.lane.route);
  }

  /** How often it was led around a peer, or opened again. */
  get reroutes(): number {
    return this.lane.reroutes;
  }

  /** Opens it. Raises NoPlan, RunFailed. */
  open(): Promise<void> {
    return this.lane.open();
  }

  /**
   * The outputs of one item, by name; `signal` gives it up. Raises WrongTensor for inputs that the model does not take,
   * RunFailed.
   */
  async run(
    inputs: ReadonlyMap<string, ValueArray>,
    signal: AbortSignal,
  ): Promise<ReadonlyMap<string, ValueArray>> {
    const { values } = this.manifest;
    const found = await this.lane.run(this.checked(inputs), signal);
    return new Map([...found].map(([place, array]) => [values[place]?.name ?? '', array]));
  }

  /** Ends the run on every peer. */
  close(): Promise<void> {
    return this.lane.close();
  }

  private checked(inputs: ReadonlyMap<string, ValueArray>): Map<number, ValueArray> {
    const { name, manifest } = this.offered;
    const given = [...inputs.keys()].sort();
    const wanted = [...manifest.inputs].sort();
    if (given.join('\n') !== wanted.join('\n')) {
      const words = (names: readonly string[]): string => (names.length > 0 ? names.join(', ') : 'nothing');
      throw new RunFailed(`${name} takes ${words(wanted)}; got ${words(given)}`);
    }
    const found = new Map<number, ValueArray>();
    manifest.values.forEach((value, place) => {
      const array = inputs.get(value.name);
      if (array !== undefined) found.set(place, fromBytes(array.data, array.shape, value));
    });
    return found;
  }
}

/** A run of the model that the mesh offers as `name`. Raises NoPlan, RunFailed, CannotServe. */
export async function openRun(
  links: PeerLinks,
  view: MeshView,
  flow: FlowHost,
  manifests: Manifests,
  name: string,
): Promise<RunClient> {
  const { offers } = view.state;
  const offer = offers.get(name);
  if (offer === undefined) {
    const known = [...offers.keys()].join(', ');
    throw new NoPlan(`this mesh offers no model ${name}; it offers ${known === '' ? 'none' : known}`);
  }
  const manifest = await flow.manifest(offer.model, manifests);
  const client = new RunClient(links, view, flow, { name, model: offer.model, manifest });
  await client.open();
  return client;
}
