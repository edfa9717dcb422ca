"""MCTSr and AB-MCTS-A in slow, plain Python, written from the papers and the authors' code.

Nothing here is imported from the code that it checks. An answer is its number from 1; 0 is the
question, which is the dummy answer of MCTSr. A search is driven from outside: `choose` or `descend`
names the node that gets a child, and `add` adds the child with its score.
"""

import math


class SelfRefine:
    """MCTSr: lists of rewards, and UCT over all nodes that are not mature."""

    def __init__(self, exploration=1.4, max_expand=3, full_score=95.0):
        self.exploration, self.max_expand, self.full_score = exploration, max_expand, full_score
        self.rewards = {0: [-100.0]}
        self.single = {}
        self.father = {0: None}
        self.children = {0: []}

    def add(self, father, score):
        """A new node; its father is None for the first answer."""
        node = len(self.rewards)
        reward = 200.0 * score - 100.0
        self.single[node] = 50.0 if reward >= self.full_score else reward
        self.rewards[node] = [self.single[node]]
        self.father[node], self.children[node] = father, []
        if father is not None:
            self.children[father].append(node)

    def quality(self, node):
        rewards = self.rewards[node]
        return (min(rewards) + sum(rewards) / len(rewards)) / 2

    def choose(self):
        """The next node to rewrite; it is rewarded once more."""
        best, highest = None, -math.inf
        for node in self.rewards:
            quality = self.quality(node)
            of_children = [self.quality(child) for child in self.children[node]]
            if len(of_children) >= self.max_expand and max(of_children) >= quality:
                continue
            if of_children:
                quality = (quality + max(of_children)) / 2
            father = self.father[node]
            above = 0 if father is None else len(self.rewards[father])
            visits = len(self.rewards[node])
            uct = quality + self.exploration * math.sqrt(math.log(above + 1) / (visits + 1e-5))
            if uct > highest:
                best, highest = node, uct
        self.rewards[best].append(self.single.get(best, -100.0))
        return best


class AdaptiveBranching:
    """AB-MCTS-A: every posterior keeps the list of the scores that it was told."""

    def __init__(self):
        self.parent = {0: None}
        self.children = {0: []}
        self.gen, self.cont, self.own = {0: []}, {0: []}, {0: []}

    def add(self, parent, score):
        node = len(self.parent)
        self.parent[node] = parent
        self.children[parent].append(node)
        self.children[node] = []
        self.gen[node], self.cont[node], self.own[node] = [], [], [score]
        self.gen[parent].append(score)
        current = parent
        while self.parent[current] is not None:
            self.own[current].append(score)
            self.cont[self.parent[current]].append(score)
            current = self.parent[current]

    def descend(self, gen, cont, own):
        """The node that gets a child, by the value that each posterior of each node drew."""
        node = 0
        while self.children[node]:
            if gen[node] >= cont[node]:
                return node
            node = max(self.children[node], key=lambda child: own[child])
        return node


def beta(scores):
    """a and b, told one score after the other."""
    a, b = 0.5, 0.5
    for score in scores:
        a, b = a + score, b + 1 - score
    return a, b


def gaussian(scores):
    """m, kappa, nu and tau^2, told one score after the other.

    The update by a single score: Murphy, "Probabilistic Machine Learning: Advanced Topics" (2023),
    section 3.4.3.3, with n = 1.
    """
    m, kappa, nu, tau_square = 0.0, 1.0, 1.0, 0.1
    for score in scores:
        tau_square = (nu * tau_square + kappa * (m - score) ** 2 / (kappa + 1)) / (nu + 1)
        m = (kappa * m + score) / (kappa + 1)
        kappa, nu = kappa + 1, nu + 1
    return m, kappa, nu, tau_square
