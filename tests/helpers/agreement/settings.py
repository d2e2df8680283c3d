"""Settings that several comparisons with the plain loop use."""

from helpers.agreement.plain import Plain
from helpers.agreement.plain_methods import (
    IFCA,
    CoDistillation,
    FedBABU,
    FedCM,
    FedDecorr,
    FedDF,
    FedLC,
    FedNTD,
    FedProto,
    FedProx,
    FedRep,
    FedRS,
    FedSAM,
    HypCluster,
    InverseVariance,
    LGFedAvg,
    MimeLite,
    PFedMe,
    Scaffnew,
    Scaffold,
    ScaffoldOption1,
)
from helpers.agreement.tolerance import ROUNDING, TO_THE_BIT, Tolerance

MLP = "model=mlp model.hidden=8 client.local_epochs=2"


# Computed in another order: c_k - c + (w_t - w_k) / (steps lr), or a variance step by step. The last bit of
# a round's c or alpha is then in all that follows.
ORDER = Tolerance(of_values=1e-6, of_movement=1e-4)
DISTILLED = (
    "validation_size=12 strategy.distillation.steps=7 strategy.distillation.lr=0.01 "
    "strategy.distillation.batch_size=5"
)
DOUBLE = Tolerance(of_values=1e-9, of_movement=1e-9)  # Adam makes a step even of what float32 has rounded
METHODS: dict[str, tuple[str, type[Plain], bool, Tolerance]] = {
    "proximal": (f"{MLP} strategy=fedprox strategy.mu=0.5", FedProx, True, TO_THE_BIT),
    "proximal, clipped": (
        f"{MLP} strategy=fedprox strategy.mu=0.5 client.max_grad_norm=0.3",
        FedProx,
        True,
        TO_THE_BIT,
    ),
    "proximal, frozen": ("model=frozen strategy=fedprox strategy.mu=0.5", FedProx, True, TO_THE_BIT),
    "proximal, momentum, decayed": (
        f"{MLP} strategy=fedprox strategy.mu=0.5 client.optimizer.momentum=0.9 client.schedule.gamma=0.5",
        FedProx,
        True,
        TO_THE_BIT,
    ),
    "proximal, adam": (f"{MLP} strategy=fedprox strategy.mu=0.5 client=adam", FedProx, True, TO_THE_BIT),
    "control variates": (f"{MLP} strategy=scaffold", Scaffold, True, ORDER),
    "control variates, option 1": (
        f"{MLP} strategy=scaffold strategy.option=1 client.batch_size=null",
        ScaffoldOption1,
        True,
        ORDER,
    ),
    "variates, and steps by chance": (
        f"{MLP} strategy=scaffnew strategy.probability=0.25 client.schedule.gamma=0.5",
        Scaffnew,
        True,
        ORDER,
    ),
    "gradient variance": (f"{MLP} weighting=inverse_variance", InverseVariance, True, ORDER),
    "head and body in turn": (
        f"{MLP} personal=fedrep client.personal.head_epochs=2 strategy=fedprox strategy.mu=0.5 "
        "client.optimizer.momentum=0.9",
        FedRep,
        False,
        TO_THE_BIT,
    ),
    "a momentum of all nodes": (f"{MLP} strategy=fedcm strategy.alpha=0.25", FedCM, True, ORDER),
    "a momentum of full gradients": (
        f"{MLP} strategy=mimelite strategy.beta=0.75",
        MimeLite,
        True,
        ORDER,
    ),
    "gradients uphill": (
        f"{MLP} corrections=fedsam client.corrections.fedsam.rho=0.5",
        FedSAM,
        False,
        ORDER,
    ),
    "calibrated logits": (f"{MLP} corrections=fedlc client.corrections.fedlc.tau=2", FedLC, False, ORDER),
    "restricted softmax": (
        f"{MLP} corrections=fedrs client.corrections.fedrs.alpha=0.25",
        FedRS,
        False,
        ORDER,
    ),
    "not-true distillation": (
        f"{MLP} corrections=fedntd client.corrections.fedntd.beta=3 client.corrections.fedntd.tau=2",
        FedNTD,
        False,
        ORDER,
    ),
    "decorrelated": (
        f"{MLP} corrections=feddecorr client.corrections.feddecorr.beta=2",
        FedDecorr,
        False,
        ROUNDING,  # of four examples, in other sums
    ),
    "the body alone": (
        f"{MLP} personal=fedbabu node_test_fraction=0.2 client.optimizer.momentum=0.9",
        FedBABU,
        False,
        TO_THE_BIT,
    ),
    "private bodies": (f"{MLP} private=lg_fedavg", LGFedAvg, True, TO_THE_BIT),
    "Moreau's envelopes": (
        f"{MLP} personal=pfedme client.personal.strength=5 client.personal.inner_steps=3 "
        "client.personal.inner_rate=0.1",
        PFedMe,
        False,
        ORDER,
    ),
    "clusters that nodes choose": (f"{MLP} strategy=ifca num_nodes=6 seed=7", IFCA, True, TO_THE_BIT),
    "clusters by examples": (f"{MLP} strategy=hypcluster num_nodes=6 seed=7", HypCluster, True, TO_THE_BIT),
    "prototypes of classes": (
        f"{MLP} strategy=fedproto strategy.strength=4",
        FedProto,
        None,  # those of the first round alone, which has no prototypes
        ORDER,
    ),
    "what all predict": (f"model=double strategy=feddf {DISTILLED}", FedDF, False, DOUBLE),
    "what the others predict": (
        f"model=double strategy=codistillation {DISTILLED}",
        CoDistillation,
        False,
        DOUBLE,
    ),
    "a mixture besides": (f"{MLP} personal=apfl", Plain, False, TO_THE_BIT),
    "a model besides": (f"{MLP} personal=ditto", Plain, False, TO_THE_BIT),
}


PICTURES = "dataset.shape=[1,28,28] dataset.load.size=15 num_nodes=2 client.batch_size=4"


TORCHS = "client_optimizer=adam client.optimizer.lr=0.01 client.optimizer._target_=torch.optim"
CLIENTS = {  # of both groups; and whether nodes can be batched: not with what looks at whole layers
    "sgd": (f"{MLP} client_optimizer=sgd", True),
    "adam": (f"{MLP} client_optimizer=adam", True),
    "adamp": (f"{MLP} client_optimizer=adamp client.optimizer.weight_decay=0.01", False),
    "full_batch": ("model=mlp client=full_batch client.local_steps=5 client.batch_size=null", True),
    "rmsgd": (
        "model=lenet client_optimizer=rmsgd dataset.shape=[1,28,28] dataset.load.size=15 client.local_epochs=2",
        False,
    ),
}
DRIVEN = {
    "momentum": (f"{MLP} client.optimizer.momentum=0.9 client.optimizer.weight_decay=0.01", True),
    "nesterov": (f"{MLP} client.optimizer.momentum=0.9 +client.optimizer.nesterov=true", True),
    "dampened": (f"{MLP} client.optimizer.momentum=0.9 +client.optimizer.dampening=0.5", True),
    "maximising": (f"{MLP} client.optimizer.lr=0.01 +client.optimizer.maximize=true", True),
    "momentum, clipped, decayed": (
        f"{MLP} client.optimizer.momentum=0.9 client.max_grad_norm=0.3 client.schedule.gamma=0.5",
        True,
    ),
    "momentum, kept": (f"{MLP} client.optimizer.momentum=0.9 client.keep_optimizer=true", False),
    "amsgrad": (f"{MLP} client_optimizer=adam +client.optimizer.amsgrad=true", True),
    "adamw": (f"{MLP} {TORCHS}.AdamW", True),
    "adagrad": (f"{MLP} {TORCHS}.Adagrad", True),
    "rmsprop": (f"{MLP} {TORCHS}.RMSprop", True),
    "clipped": (f"{MLP} client.max_grad_norm=0.3", True),
    "steps": ("model=mlp client.local_epochs=null client.local_steps=7", True),
    "whole": (f"{MLP} client.batch_size=null", True),
    "whole, clipped": (f"{MLP} client.batch_size=100 client.max_grad_norm=0.1", True),
    "decayed": (f"{MLP} client.schedule.gamma=0.5", True),
    "kept": (f"{MLP} client_optimizer=adam client.keep_optimizer=true", False),
}
