class BaseTrainer:
    def __init__(self, model, optimizer, epochs):
        self.model = model
        self.optimizer = optimizer
        self.epochs = epochs

    def train_epoch(self, epoch):
        raise NotImplementedError

    def train_stage(self, stage):
        raise NotImplementedError

    def train(self):
        for epoch in range(1, self.epochs + 1):
            self.train_epoch(epoch)

    def train_stages(self, stages):
        for stage in stages:
            self.optimizer = stage.optimizer()
            self.train_stage(stage)
